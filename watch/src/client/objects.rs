//! Requests for single objects, with answers in JSON.

use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::body::MAX_OBJECT;
use super::{ApiClient, Failure, ONLY_JSON};

/// Maximum time for a request and its whole answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A request for an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Read it.
    Get,
    /// Add it to its collection.
    Create(Value),
    /// Replace these fields (JSON merge patch).
    Merge(Value),
    /// Replace these fields. Lists are merged by their keys (strategic merge
    /// patch), so that entries of others stay.
    StrategicMerge(Value),
}

impl ApiClient {
    /// Sends a request for the object or the collection at `path`, which may have
    /// a query.
    ///
    /// # Errors
    /// Every [`Failure`]; 404 if a requested object does not exist, 409 if a new
    /// one does.
    pub async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        request: Request,
    ) -> Result<T, Failure> {
        let (method, content_type, body) = match request {
            Request::Get => ("GET", "application/json", Value::Null),
            Request::Create(object) => ("POST", "application/json", object),
            Request::Merge(fields) => ("PATCH", "application/merge-patch+json", fields),
            Request::StrategicMerge(fields) => {
                ("PATCH", "application/strategic-merge-patch+json", fields)
            }
        };
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| Failure::request(&error))?;
        let connection = self.connection().await?;
        let exchange = async {
            let mut response = connection
                .send(request, ONLY_JSON, TIMEOUT, TIMEOUT)
                .await?;
            let body = response.body.rest(MAX_OBJECT).await;
            let object = body.map_err(|error| error.of_answer(&response.url))?;
            serde_json::from_slice(object).map_err(|e| Failure::garbage(&response.url, &e))
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(Failure::silent(&connection.url, TIMEOUT)));
        if answer.as_ref().is_err_and(|failure| !failure.is_answered()) {
            self.leave(&connection);
        }
        answer
    }
}

/// A time with its fraction of a second: `2026-11-21T10:00:00.25Z`.
pub fn timestamp(time: SystemTime) -> String {
    // It fails for years that have more than four digits.
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    time.to_string()
}

/// The current time as the API writes it: `2026-11-21T10:00:00Z`.
pub fn timestamp_now() -> String {
    let now = Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
