//! Which requests are sent again after they were sent in vain.

use discovery_core::attempts::{RetryBudget, RetryPolicy};
use http::{Method, StatusCode};

/// Which requests are sent again, to an instance that is picked anew, and how often.
///
/// A request is sent again if its method allows it, its body is bytes or was not begun, nothing of a response was handed out, and either its
/// connection broke or the answer's status is among [`statuses`](Self::with_statuses); never after a timeout. If nobody can take it at once
/// then, the caller gets what came of it before. Each service has a budget that
/// answers below 500 refill. A request whose connection was never made moves on regardless of all this, and costs nothing here.
#[derive(Debug, Clone)]
pub struct Retries {
    pub(crate) policy: RetryPolicy,
    budget: (u32, f32),
    methods: Vec<Method>,
    statuses: Vec<StatusCode>,
}

impl Default for Retries {
    /// `GET`, `HEAD`, `OPTIONS`, `TRACE`, `PUT` and `DELETE`; two attempts in all; 502, 503 and 504; ten tokens of which a success gives
    /// back a tenth.
    fn default() -> Self {
        Self {
            policy: RetryPolicy::default(),
            budget: (10, 0.1),
            methods: vec![Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE],
            statuses: vec![StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT],
        }
    }
}

impl Retries {
    /// Sets how many attempts there are, and how long to wait between them.
    #[must_use]
    pub fn with_policy(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the tokens of each service's budget, and which part of one a success gives back; see [`RetryBudget::new`].
    #[must_use]
    pub fn with_budget(mut self, max_tokens: u32, ratio: f32) -> Self {
        self.budget = (max_tokens, ratio);
        self
    }

    /// Sets the methods. Add only those that may be done twice.
    #[must_use]
    pub fn with_methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Sets the statuses; with none, only broken connections count.
    #[must_use]
    pub fn with_statuses(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.statuses = statuses.into_iter().collect();
        self
    }

    pub(crate) fn budget(&self) -> RetryBudget {
        RetryBudget::new(self.budget.0, self.budget.1)
    }

    pub(crate) fn allows(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    pub(crate) fn has(&self, status: StatusCode) -> bool {
        self.statuses.contains(&status)
    }
}
