//! `taskharbor_worker_info`: the workers that run in this process.

use std::sync::{Mutex, PoisonError};

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::label::{Labels, Names, labels};

#[derive(Default)]
pub(crate) struct Workers {
    info: Family<Labels, Gauge>,
    names: Names,
    versions: Names,
    /// The workers that have started and not stopped, with their labels.
    running: Mutex<Vec<(String, Labels)>>,
}

impl Workers {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Workers that run in this process";
        registry.register("taskharbor_worker_info", help, self.info.clone());
    }

    pub(crate) fn started(&self, name: &str, version: Option<&str>) {
        let version = version.map(|version| self.versions.label(version)).unwrap_or_default();
        let labels = labels([("name", &self.names.label(name)), ("version", &version)]);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.get_or_create_owned(&labels).inc();
        running.push((name.to_owned(), labels));
    }

    /// A worker that could not start is not among those that run.
    pub(crate) fn stopped(&self, name: &str) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = running.iter().position(|(other, _)| other == name) else { return };
        let (_, labels) = running.swap_remove(at);
        if self.info.get_or_create_owned(&labels).dec() <= 1 {
            self.info.remove(&labels);
        }
    }
}
