//! Requests for single objects: read, create and patch, with answers in JSON.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{GetParams, PatchParams, PostParams};
use kube::core::Request;
use kube::core::request::Error as RequestError;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::body::MAX_OBJECT;
use super::{ApiClient, Failure, ONLY_JSON};

/// Maximum time for a request and its whole answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A change of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// Fields to replace in the object itself (JSON merge patch).
    Merge(Value),
    /// Fields to replace in the object's `status`. Lists are merged by their
    /// keys (strategic merge patch), so that entries of others stay.
    Status(Value),
}

impl ApiClient {
    /// Reads the object `name` of the collection at `path`.
    ///
    /// # Errors
    /// Every [`Failure`]; 404 if there is no such object.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, name: &str) -> Result<T, Failure> {
        let request = Request::new(path).get(name, &GetParams::default());
        self.request(request).await
    }

    /// Adds `object` to the collection at `path`.
    ///
    /// # Errors
    /// Every [`Failure`]; 409 if there is an object of the name.
    pub async fn create<T: DeserializeOwned>(
        &self,
        path: &str,
        object: &Value,
    ) -> Result<T, Failure> {
        let body = object.to_string().into_bytes();
        let request = Request::new(path).create(&PostParams::default(), body);
        self.request(request).await
    }

    /// Changes the object `name` of the collection at `path`. `manager` is named
    /// in its `managedFields`.
    ///
    /// # Errors
    /// Every [`Failure`]; 404 if there is no such object.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        name: &str,
        manager: &str,
        patch: Patch,
    ) -> Result<T, Failure> {
        let parameters = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let path = Request::new(path);
        let request = match patch {
            Patch::Merge(fields) => path.patch(name, &parameters, &kube::api::Patch::Merge(fields)),
            Patch::Status(fields) => path.patch_subresource(
                "status",
                name,
                &parameters,
                &kube::api::Patch::Strategic(serde_json::json!({ "status": fields })),
            ),
        };
        self.request(request).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, RequestError>,
    ) -> Result<T, Failure> {
        let request = request.map_err(|error| Failure::request(&error))?;
        let connection = self.connection().await?;
        let url = connection.url.clone();
        let exchange = async {
            let mut response = connection.send(request, ONLY_JSON, TIMEOUT).await?;
            let object = response.body.rest(MAX_OBJECT).await;
            let object = object.map_err(|error| error.of_answer(&url))?;
            serde_json::from_slice(object).map_err(|error| Failure::garbage(&url, &error))
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::silent(&url, TIMEOUT)));
        if let Err(failure) = &answer
            && !failure.is_answered()
        {
            self.reconnect();
        }
        answer
    }
}

/// The current time as the API writes it: `2026-11-21T10:00:00Z`.
#[must_use]
pub fn timestamp_now() -> String {
    let now = Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
