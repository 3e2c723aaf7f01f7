//! The conformance suite: one named test for each contract, against any backend.
//!
//! Implement [`Fixture`] and [`Link`] for your store, and let the macro write the tests, each against a store of its own:
//!
//! ```ignore
//! discovery_core::conformance!(MyFixture, #[tokio::test(flavor = "multi_thread")]);
//! ```
//!
//! A contract that joins the suite reaches every backend with the next build. What a store cannot do it says in its
//! [`Capabilities`](crate::store::Capabilities), and the suite then asserts what it does instead: nothing is skipped silently.
//! Where a store is not installed, [`Fixture::start`] answers `None` and says so on standard error.

mod disk;
mod field;
mod fixture;
mod gaps;
mod load;
mod registration;
mod repair;
mod stage;
mod story;
mod watching;

pub use disk::*;
pub use field::*;
pub use fixture::{Fixture, Link};
pub use gaps::*;
pub use load::*;
pub use registration::*;
pub use repair::*;
pub use stage::{Stage, eventually, stays};
pub use story::*;
pub use watching::*;

/// Runs one contract on a fresh store; used by the macro.
pub async fn run<F: Fixture>(contract: impl AsyncFnOnce(Stage<F>)) {
    if let Some(fixture) = F::start().await {
        contract(Stage::new(fixture)).await;
    }
}

/// Writes one test for each contract against a [`Fixture`], each under the given test attribute.
#[macro_export]
macro_rules! conformance {
    ($fixture:ty, #[$attribute:meta]) => {
        $crate::conformance!(@tests $fixture, #[$attribute],
            r01_registered_can_be_read_by_others,
            r01_an_unconfirmed_registration_fails_by_its_deadline_and_leaves_nothing,
            r02_deregistered_is_gone_and_stays_gone,
            r02_deregister_ends_by_its_deadline_and_tries_again_for_real,
            r02_deregister_never_removes_a_newer_owners_record,
            r02_a_record_without_a_lease_is_removed_too,
            r03_a_dead_process_is_gone_within_its_ttl,
            r04_a_revoked_lease_is_replaced,
            r04_a_deleted_record_comes_back,
            r04_a_record_overwritten_without_a_lease_comes_back,
            r04_an_emptied_store_is_filled_again,
            r04_an_outage_longer_than_the_ttl_is_survived,
            r05_a_reconnect_writes_nothing,
            r05_a_restart_that_kept_its_data_is_survived,
            r06_a_new_registration_takes_over,
            r06_a_former_owner_does_not_return_after_the_newer_one,
            r06_a_second_registration_on_one_handle_takes_over,
            r07_an_update_is_one_modification_and_is_what_comes_back,
            r08_one_connection_and_one_lease,
            r09_drain_marks_waits_and_deregisters,
            r10_dropping_deregisters_and_ends_everything,
            r10_close_ends_everything,
            r11_the_state_is_observable,
            r12_what_cannot_work_is_refused_before_it_is_sent,
            w01_the_first_set_is_full_even_if_empty,
            w02_no_change_is_lost_while_watches_open,
            w02_what_changes_while_a_set_is_read_is_in_it,
            w02_f02_a_gap_is_compared_not_merged,
            w03_a_slow_reader_gets_the_newest_set,
            w04_an_outage_empties_nothing,
            w05_a_watch_ends_only_with_its_backend,
            w06_f09_a_bad_record_hides_nobody,
            w06_the_last_good_value_is_kept,
            w07_watches_share_one_subscription,
            w08_sets_converge_without_notifications,
            w09_live_removals_are_immediate_and_the_last_one_too,
            w09_a_sharp_shrink_across_a_gap_is_held,
            w09_without_the_brake_the_store_is_believed,
            w10_a_watch_never_goes_back,
            w11_f07_names_are_isolated,
            w11_f07_namespaces_are_isolated,
            w12_a_silent_connection_is_replaced,
            w13_a_store_that_comes_late_is_awaited,
            w13_a_start_without_the_store_is_served_from_the_disk,
            w09_a_store_that_returns_empty_is_compared_with_the_disk,
            watching_services_lists_their_names,
            l01_an_outage_costs_few_attempts,
            l02_a_return_costs_what_is_held,
            l02_an_emptied_store_is_filled_once,
            l03_a_change_costs_one_record,
            l04_f17_a_large_set_is_read_whole,
            f01_an_outage_of_a_minute_ends_in_a_renewed_registration,
            f03_a_consumer_that_was_there_first_sees_every_provider,
            f04_a_network_that_falls_silent_is_replaced,
            f04_a_stopped_server_is_noticed,
            f05_the_last_instance_leaves,
            f06_a_refused_read_empties_nothing,
            f08_ipv6_addresses_survive_the_store,
            f15_ending_is_bounded_and_made_up_for,
            f18_identities_neither_collide_nor_double,
            story_of_three_instances,
            f20_watches_opened_during_churn_end_at_the_stores_set,
        );
    };
    (@tests $fixture:ty, #[$attribute:meta], $($name:ident),* $(,)?) => {
        $(
            #[$attribute]
            async fn $name() {
                $crate::conformance::run::<$fixture>($crate::conformance::$name).await;
            }
        )*
    };
}
