//! A collection that a server does not have.
//!
//! The kind of a CRD is there only while its CRD is, and in the versions that the CRD
//! serves. A server without it answers 404, which is no failure: the collection is known
//! to be empty. It is asked for again once or twice a minute, by the same request of a
//! list, whose refusal costs a server less than any other question would.
//!
//! Policies that count as absent are not in force, so a single 404 is not believed: a
//! proxy or another server at that address may answer it too. What the server says about
//! its groups and versions must agree.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;

use tweed_core::object::Event;
use tweed_core::text::printable;

use crate::client::{Failure, Request};
use crate::kind::Kind;
use crate::watcher::{AttemptError, Session};

/// Whether the server has the collection of a watcher. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Absence(Arc<Mutex<Option<String>>>);

impl Absence {
    /// Why the collection is known to be empty: what the server has instead. None while
    /// the server has it, and before it is known.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        // A reason is whole whoever panicked.
        let reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone()
    }

    /// Sets the reason; returns the one before.
    fn replace(&self, reason: Option<String>) -> Option<String> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, reason)
    }
}

/// `meta/v1.APIResourceList`, of one version of a group.
#[derive(Deserialize)]
struct Resources {
    #[serde(rename = "resources")]
    all: Vec<Named>,
}

/// `meta/v1.APIGroupList`.
#[derive(Deserialize)]
struct Groups {
    #[serde(rename = "groups")]
    all: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl<K: Kind> Session<K> {
    /// Whether `failure` means that the server does not have the collection. Then it is
    /// known to be empty, and the consumer has been told so.
    ///
    /// # Errors
    /// The failure, if it means something else or if the server does not confirm it.
    pub(crate) async fn absent(&mut self, failure: Failure) -> Result<(), AttemptError> {
        if !K::OPTIONAL || !failure.is_answer(404) {
            return Err(failure.into());
        }
        self.version = None;
        if self.absence.reason().is_none() {
            let reason = self.confirm_absence(failure).await?;
            tracing::info!("{reason}: there are no {}", K::KINDS);
            self.absence.replace(Some(reason));
            self.events.send(Event::Init).await?;
            self.events.send(Event::InitDone).await?;
        }
        self.last_word.now();
        self.restored().await
    }

    /// Notes that the server has the collection.
    pub(crate) fn present(&self) {
        if self.absence.replace(None).is_some() {
            tracing::info!("the API server has {} now", K::resource());
        }
    }

    /// What the server has in place of the collection that it answered `not_found` for.
    async fn confirm_absence(&self, not_found: Failure) -> Result<String, Failure> {
        let (resource, version) = (K::resource(), K::api_version());
        let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
        let lacks = format!("the API server has no {resource} of {version}");
        let path = format!("/apis/{version}");
        match self.client.send::<Resources>(&path, Request::Get).await {
            Ok(resources) if resources.all.iter().any(|one| one.name == plural) => {
                return Err(not_found);
            }
            Ok(_) => return Ok(lacks),
            Err(failure) if failure.is_answer(404) => {}
            Err(failure) => return Err(failure),
        }
        let groups: Groups = self.client.send("/apis", Request::Get).await?;
        let Some(group) = groups.all.into_iter().find(|one| one.name == group) else {
            return Ok(lacks);
        };
        let versions = group.versions.into_iter();
        let versions: Vec<String> = versions.map(|one| printable(&one.version)).collect();
        match versions
            .iter()
            .any(|one| version.ends_with(&format!("/{one}")))
        {
            true => Err(not_found),
            false => Ok(format!("{lacks} (the group is in {})", versions.join(", "))),
        }
    }
}
