//! Which verb is which.

use tweed_cni::{AddResult, CniError, Plugin, Request, Target};

use crate::config::unknown_keys;
use crate::datapath::Datapath;
use crate::verbs::{add, check, del, gc, status};
use crate::{Tweed, delegate::Delegate};

impl<P: Datapath, D: Delegate> Plugin for Tweed<P, D> {
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        warn_of_unknown_keys(request);
        add::add(self, request, target)
    }

    fn del(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        del::del(self, request, target)
    }

    fn check(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        check::check(self, request, target)
    }

    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        warn_of_unknown_keys(request);
        status::status(self, request)
    }

    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        gc::gc(self, request)
    }
}

fn warn_of_unknown_keys(request: &Request<'_>) {
    for key in unknown_keys(&request.config) {
        request.log(format_args!("warning: unknown key {key} is ignored"));
    }
}
