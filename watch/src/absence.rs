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
//!
//! A server asks for rights before it looks for the kind: to an agent without the right
//! to read it, it answers 403 whether it has the kind or not. What it says about its
//! groups and versions, which everybody with an account may read, decides that too.

use serde::Deserialize;

use tweed_core::object::Event;
use tweed_core::text::printable;

use crate::client::{Failure, Request};
use crate::kind::Kind;
use crate::watcher::{AttemptError, Session};

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
        let forbidden = matches!(failure, Failure::Forbidden { .. });
        if !K::OPTIONAL || !(forbidden || failure.is_answer(404)) {
            return Err(failure.into());
        }
        if !forbidden {
            self.version = None;
        }
        // Without the right, it is not seen otherwise that the kind has come.
        if self.absence.is_none() || forbidden {
            let reason = match self.in_its_place().await {
                Ok(Some(reason)) => reason,
                Ok(None) => {
                    if self.present() {
                        // It is no longer known to be empty, though no list can begin.
                        self.events.send(Event::Init).await?;
                    }
                    return Err(failure.into());
                }
                // The right that is missing is what can be mended.
                Err(_) if forbidden => return Err(failure.into()),
                Err(other) => return Err(other.into()),
            };
            self.version = None;
            self.set_absent(reason).await?;
        }
        self.last_contact.now();
        self.restored().await
    }

    /// Tells the consumer that the collection is empty, and why, unless it knows.
    async fn set_absent(&mut self, reason: String) -> Result<(), AttemptError> {
        if self.absence.as_ref() == Some(&reason) {
            return Ok(());
        }
        tracing::info!("{reason}: there are no {}", K::KINDS);
        self.absence = Some(reason.clone());
        self.events.send(Event::Init).await?;
        self.events.send(Event::InitDone).await?;
        self.events.send(Event::Absent(reason)).await?;
        Ok(())
    }

    /// Notes that the server has the collection. Says whether it had not.
    pub(crate) fn present(&mut self) -> bool {
        let is_new = self.absence.take().is_some();
        if is_new {
            tracing::info!("the API server has {} now", K::resource());
        }
        is_new
    }

    /// What the server has in place of the collection; none if it has the collection.
    async fn in_its_place(&self) -> Result<Option<String>, Failure> {
        let (resource, version) = (K::resource(), K::api_version());
        let (plural, group) = resource.split_once('.').unwrap_or((&resource, ""));
        let lacks = format!("the API server has no {resource} of {version}");
        let path = format!("/apis/{version}");
        match self.client.send::<Resources>(&path, Request::Get).await {
            Ok(resources) => {
                let has = resources.all.iter().any(|one| one.name == plural);
                return Ok((!has).then_some(lacks));
            }
            Err(failure) if failure.is_answer(404) => {}
            Err(failure) => return Err(failure),
        }
        let groups: Groups = self.client.send("/apis", Request::Get).await?;
        let Some(group) = groups.all.into_iter().find(|one| one.name == group) else {
            return Ok(Some(lacks));
        };
        let versions = group.versions.into_iter();
        let versions: Vec<String> = versions.map(|one| printable(&one.version)).collect();
        let is_own = |one: &String| version.ends_with(&format!("/{one}"));
        let has = versions.iter().any(is_own);
        let others = || format!("{lacks} (the group is in {})", versions.join(", "));
        Ok((!has).then(others))
    }
}
