//! Which failed calls are made again, and which slow ones twice.

use std::time::Duration;

use discovery_core::attempts::{Hedge, HedgeOptions, RetryBudget, RetryPolicy};
use http::HeaderMap;
use tonic::Code;

/// The largest request that is kept to be sent again, by default.
const DEFAULT_BUFFER: usize = 64 * 1024;
/// By which a server says how long to wait, or not to try again (gRPC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// By which a server hears how many attempts came before (gRPC A6).
pub(super) const PREVIOUS: &str = "grpc-previous-rpc-attempts";

/// A server must not be able to park a call for good.
const LONGEST_PUSHBACK: Duration = Duration::from_secs(60);

type Applies = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Sends calls again whose attempt failed with a status before anything was answered, and, if asked, slow ones a second time.
///
/// A request that was sent may have been carried out, so give this only to methods that may be called twice. What was never sent goes to
/// another instance anyway, without any of this.
///
/// Requests are kept up to the [buffer](Self::with_buffer): whatever is larger, or still being written beyond it, is sent once. A retry goes to
/// another instance if the picker gives another.
pub struct Retries {
    policy: RetryPolicy,
    budget: RetryBudget,
    codes: Vec<Code>,
    pub(super) buffer: usize,
    methods: Option<Applies>,
    pub(super) hedge: Option<Hedge>,
}

impl Retries {
    /// Retries by this policy what failed as [`Unavailable`](Code::Unavailable), in every method, within the default
    /// [budget](RetryBudget::default).
    pub fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            budget: RetryBudget::default(),
            codes: vec![Code::Unavailable],
            buffer: DEFAULT_BUFFER,
            methods: None,
            hedge: None,
        }
    }

    /// Sets which methods may be called twice, by their path, such as `/greeter.Greeter/SayHello`; all by default.
    #[must_use]
    pub fn for_methods(mut self, methods: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.methods = Some(Box::new(methods));
        self
    }

    /// Sets which codes are worth another attempt; `Unavailable` alone by default.
    #[must_use]
    pub fn with_codes(mut self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.codes = codes.into_iter().collect();
        self
    }

    /// Sets how many retries all calls of the channel may make together.
    #[must_use]
    pub fn with_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the largest request in bytes that is kept to be sent again; 64 KiB by default.
    #[must_use]
    pub fn with_buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes;
        self
    }

    /// Also sends a second copy of a call whose answer takes longer than nearly all do; the first answer counts. All methods of this channel
    /// are taken for alike.
    #[must_use]
    pub fn with_hedging(mut self, options: HedgeOptions) -> Self {
        self.hedge = Some(Hedge::new(options));
        self
    }

    pub(super) fn apply_to(&self, path: &str) -> bool {
        self.methods.as_ref().is_none_or(|methods| methods(path))
    }

    /// Hears that a call succeeded.
    pub(super) fn succeeded(&self) {
        self.budget.succeeded();
    }

    /// How long to wait before the next attempt, after so many have failed and this was the answer; `None` for no further one.
    pub(super) fn wait_after(&self, failed: u32, code: Code, headers: &HeaderMap) -> Option<Duration> {
        if !self.codes.contains(&code) {
            return None;
        }
        self.budget.failed();
        let wait = self.policy.wait_after(failed).filter(|_| self.budget.permits())?;
        match headers.get(PUSHBACK) {
            // What is no number of milliseconds means no further attempt, and so does more than anybody waits for.
            Some(pushback) => {
                let pushback = pushback.to_str().ok()?.parse().ok().map(Duration::from_millis);
                pushback.filter(|wait| *wait <= LONGEST_PUSHBACK)
            }
            None => Some(wait),
        }
    }
}

impl std::fmt::Debug for Retries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Retries")
            .field("policy", &self.policy)
            .field("codes", &self.codes)
            .field("buffer", &self.buffer)
            .field("hedge", &self.hedge)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn code_attempts_budget_and_pushback_decide() {
        let retries = || Retries::new(RetryPolicy::default().with_attempts(3));
        let none = HeaderMap::new();
        assert!(retries().wait_after(1, Code::Unavailable, &none).is_some());
        assert!(retries().wait_after(3, Code::Unavailable, &none).is_none());
        assert!(retries().wait_after(1, Code::Internal, &none).is_none());
        let more = retries().with_codes([Code::Internal]);
        assert!(more.wait_after(1, Code::Internal, &none).is_some());
        assert!(more.wait_after(1, Code::Unavailable, &none).is_none());
        let poor = retries().with_budget(RetryBudget::new(2, 0.5));
        assert!(poor.wait_after(1, Code::Unavailable, &none).is_none());
        let pushed = |text: &'static str| {
            let headers = HeaderMap::from_iter([(PUSHBACK.parse().unwrap(), HeaderValue::from_static(text))]);
            retries().wait_after(1, Code::Unavailable, &headers)
        };
        assert_eq!(pushed("70"), Some(Duration::from_millis(70)));
        assert_eq!((pushed("-1"), pushed("soon"), pushed("60001")), (None, None, None));
    }

    #[test]
    fn methods_are_chosen_by_path() {
        let retries = Retries::new(RetryPolicy::default()).for_methods(|path| path.starts_with("/a/"));
        assert!(retries.apply_to("/a/B") && !retries.apply_to("/b/A"));
        assert!(Retries::new(RetryPolicy::default()).apply_to("/b/A"));
    }
}
