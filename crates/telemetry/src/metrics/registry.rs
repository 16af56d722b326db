//! A registry that also knows what was declared, series or none.

use super::{BuildInfo, Counter, Gauge, Histogram};
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder,
    core::{Atomic, Collector, GenericCounter, GenericGauge},
};
use std::sync::Mutex;

/// Type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its whole name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// What it means.
    pub help: String,
}

/// Something to do before each scrape.
type Hook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Families {
    registry: Registry,
    declared: Vec<Declared>,
    hooks: Vec<Hook>,
    scraping: Mutex<()>,
}

/// Declares families; those of roles the process does not have get handles but are not served.
pub(super) struct Declare<'a> {
    families: &'a mut Families,
    served: bool,
}

impl Families {
    pub(super) fn only(&mut self, served: bool) -> Declare<'_> {
        Declare { families: self, served }
    }

    pub(super) fn declared(&self) -> &[Declared] {
        &self.declared
    }

    pub(super) fn render(&self) -> String {
        // Two scrapes at once must not run the hooks into each other.
        let _one = self.scraping.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.hooks.iter().for_each(|hook| hook());
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// `count` bounds, each `factor` times the one before.
pub(super) fn exponential(start: f64, factor: f64, count: i32) -> Vec<f64> {
    (0..count).map(|i| start * factor.powi(i)).collect()
}

impl Declare<'_> {
    fn add(&mut self, collector: impl Collector + 'static, kind: Kind) {
        if !self.served {
            return;
        }
        for desc in collector.desc() {
            let mut labels = desc.variable_labels.clone();
            labels.extend(desc.const_label_pairs.iter().map(|pair| pair.name().to_owned()));
            let (name, help) = (desc.fq_name.clone(), desc.help.clone());
            self.families.declared.push(Declared { name, kind, labels, help });
        }
        let registered = self.families.registry.register(Box::new(collector));
        debug_assert!(registered.is_ok(), "{registered:?}");
    }

    pub(super) fn hook(&mut self, hook: impl Fn() + Send + Sync + 'static) {
        if self.served {
            self.families.hooks.push(Box::new(hook));
        }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        let gauge = valid(GenericGauge::with_opts(Opts::new(name, help)));
        self.add(gauge.clone(), Kind::Gauge);
        Gauge(gauge)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str) -> Counter {
        let counter = self.number_counter(name, help);
        Counter(counter)
    }

    pub(super) fn float_counter(&mut self, name: &str, help: &str) -> prometheus::Counter {
        self.number_counter(name, help)
    }

    fn number_counter<P: Atomic + 'static>(&mut self, name: &str, help: &str) -> GenericCounter<P> {
        let counter = valid(GenericCounter::with_opts(Opts::new(name, help)));
        self.add(counter.clone(), Kind::Counter);
        counter
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, buckets: Vec<f64>) -> Histogram {
        let histogram =
            valid(prometheus::Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)));
        self.add(histogram.clone(), Kind::Histogram);
        Histogram(histogram)
    }

    pub(super) fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        let family = valid(IntCounterVec::new(Opts::new(name, help), labels));
        self.add(family.clone(), Kind::Counter);
        family
    }

    pub(super) fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        let family = valid(GaugeVec::new(Opts::new(name, help), labels));
        self.add(family.clone(), Kind::Gauge);
        family
    }

    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> HistogramVec {
        let family = valid(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels));
        self.add(family.clone(), Kind::Histogram);
        family
    }

    pub(super) fn build_info(&mut self, subsystem: &str, build: BuildInfo) {
        let labels = ["version", "revision", "branch", "build_user", "build_date", "goversion"];
        let help = "Always 1; the labels say what was built, from what, when and by whom.";
        let family = self.gauges(&format!("ovnkube_{subsystem}_build_info"), help, &labels);
        let BuildInfo { version, revision, branch, build_user, build_date, compiler } = build;
        family.with_label_values(&[version, revision, branch, build_user, build_date, compiler]).set(1.0);
    }
}

/// Names and labels are fixed in this crate; a test declares them all.
#[expect(clippy::expect_used, reason = "only a name written in this crate can be wrong")]
fn valid<T>(declared: Result<T, prometheus::Error>) -> T {
    declared.expect("a metric's name, labels and buckets are valid")
}
