//! What the backends' own tests have in common besides the conformance suite.
//!
//! A [`Subject`] says how a backend is opened, a [`Wire`] is the network before one handle. Each case is the body of a test that has the
//! same name, with the number of its contract or field case, in every backend.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures are worth reading")]

mod backup;
mod hosts;
mod outage;
mod recipe;
mod rights;
#[cfg(feature = "certificates")]
mod secrets;
mod size;
mod stage;
mod subject;
#[cfg(feature = "certificates")]
mod tls;
mod wire;

pub use backup::an_older_record_that_a_backup_brought_back_is_written_anew;
pub use hosts::{a_first_host_that_refuses_costs_no_request, a_host_that_falls_silent_is_left};
pub use outage::a_minute_without_the_registry_costs_next_to_nothing;
pub use recipe::recipe;
pub use rights::{Operator, a_rotated_password_is_read_anew, the_recipes_are_enough_and_least};
#[cfg(feature = "certificates")]
pub use secrets::{PASSWORD, secrets_are_never_shown};
pub use size::{large, ten_thousand_services_survive_a_restart};
pub use stage::{holds, ids, instance, policy, refused, register, settle, shows};
pub use subject::Subject;
#[cfg(feature = "certificates")]
pub use tls::{
    a_new_authority_is_trusted_without_a_restart, a_rotated_certificate_is_read_anew, certificates_on_both_sides,
    files_that_are_broken_at_a_reconnect_heal, wrong_certificates_are_said,
};
pub use wire::Wire;
