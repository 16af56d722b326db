//! The configuration as an operator meets it.

mod access;
mod command_lines;
mod hostile;
mod priority;
mod report;
mod rules;

use config::{Config, ConfigError, Source, Warning};
use std::{collections::BTreeMap, io, path::Path};

/// Arguments, environment and files of one start.
#[derive(Default, Clone)]
struct Start {
    args: Vec<String>,
    env: BTreeMap<String, String>,
    files: BTreeMap<String, Vec<u8>>,
}

const DEFAULT_FILE: &str = "/etc/openvswitch/ovn_k8s.conf";

fn start(args: &[&str]) -> Start {
    Start::default().args(args)
}

impl Start {
    fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    fn file(mut self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.files.insert(path.into(), text.as_ref().to_vec());
        self
    }

    /// The configuration file at its default place.
    fn ini(self, text: &str) -> Self {
        self.file(DEFAULT_FILE, text)
    }

    fn load(&self) -> Result<(Config, Vec<Warning>), ConfigError> {
        config::load(&Source {
            args: &self.args,
            env: &|name| self.env.get(name).cloned(),
            read_file: &|path: &Path| {
                let found = path.to_str().and_then(|p| self.files.get(p)).cloned();
                found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            },
        })
    }

    fn config(&self) -> Config {
        self.load().unwrap_or_else(|e| panic!("{e}")).0
    }

    fn warnings(&self) -> Vec<String> {
        let (_, warnings) = self.load().unwrap_or_else(|e| panic!("{e}"));
        warnings.iter().map(ToString::to_string).collect()
    }

    fn error(&self) -> String {
        match self.load() {
            Ok(_) => panic!("{:?} was accepted", self.args),
            Err(e) => e.to_string(),
        }
    }
}
