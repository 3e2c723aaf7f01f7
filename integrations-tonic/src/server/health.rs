//! The standard health service of gRPC (`grpc.health.v1.Health`), beside what the user serves.

use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

/// Says how it stands with the server and with each service that it names.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// `None` if the user serves one of their own.
    reporter: Option<HealthReporter>,
    names: Vec<String>,
}

impl Health {
    /// Adds the service to the routes. The whole server goes by the empty name, as the protocol defines it.
    pub(super) async fn beside(routes: Routes, names: Option<Vec<String>>) -> (Self, Routes) {
        let Some(mut names) = names else {
            return (Self { reporter: None, names: Vec::new() }, routes);
        };
        names.push(String::new());
        let (reporter, service) = health_reporter();
        let health = Self { reporter: Some(reporter), names };
        health.set(false).await;
        (health, routes.add_service(service))
    }

    /// Says whether requests are welcome.
    pub(super) async fn set(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        if let Some(reporter) = &self.reporter {
            for name in &self.names {
                reporter.set_service_status(name, status).await;
            }
        }
    }
}
