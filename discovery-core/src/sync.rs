//! What threads of the read path share: the standard library's, or in the tests of `balancer/interleavings` (`--cfg discovery_loom`) loom's.
//!
//! Loom runs a test in every order in which its threads may take their steps, and lets a relaxed read return every value that it may.

#[cfg(not(all(test, discovery_loom)))]
pub(crate) use std::sync::{Arc as Counted, Mutex, MutexGuard, atomic};

#[cfg(all(test, discovery_loom))]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(all(test, discovery_loom))]
pub(crate) use modelled::Counted;

#[cfg(all(test, discovery_loom))]
mod modelled {
    use std::ops::Deref;
    use std::sync::Arc;

    use super::atomic::{AtomicUsize, Ordering};

    /// An `Arc` whose count loom knows, with the orderings of the standard library. Loom's own always shows the newest count, as no
    /// processor promises.
    #[derive(Debug)]
    pub(crate) struct Counted<T> {
        value: Arc<T>,
        count: Arc<AtomicUsize>,
    }

    impl<T> Counted<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { value: Arc::new(value), count: Arc::new(AtomicUsize::new(1)) }
        }

        pub(crate) fn strong_count(this: &Self) -> usize {
            this.count.load(Ordering::Relaxed)
        }
    }

    impl<T> Clone for Counted<T> {
        fn clone(&self) -> Self {
            self.count.fetch_add(1, Ordering::Relaxed);
            Self { value: self.value.clone(), count: self.count.clone() }
        }
    }

    impl<T> Drop for Counted<T> {
        fn drop(&mut self) {
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    impl<T> Deref for Counted<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }
}
