//! Bandwidth annotations: what the user wrote, as limits.

use crate::board::BandwidthAnnotations;

/// The range Kubernetes allows, in bit/s.
const RANGE: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;

/// Limits of a pod's interface in bit/s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Towards the pod.
    pub ingress: Option<u64>,
    /// From the pod.
    pub egress: Option<u64>,
}

/// An annotation that is no limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthError {
    /// Not a quantity.
    #[error("annotation {key}: {value:?} is not a quantity such as 10M")]
    NotAQuantity {
        /// The annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// Too little or too much.
    #[error("annotation {key}: {value:?} is out of range, use 1k to 1P bit/s")]
    OutOfRange {
        /// The annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

// === impl Limits ===

impl Limits {
    /// Judges the annotations. Kubernetes' own keys win over those of Kube-OVN.
    pub fn of(annotations: &BandwidthAnnotations) -> Result<Limits, BandwidthError> {
        let pick = |quantity: &Option<String>, qkey, rate: &Option<String>, rkey| match (quantity, rate) {
            (Some(text), _) => judge(qkey, text, 1).map(Some),
            (None, Some(text)) => judge(rkey, text, 1_000_000).map(Some),
            (None, None) => Ok(None),
        };
        Ok(Limits {
            ingress: pick(
                &annotations.ingress,
                "kubernetes.io/ingress-bandwidth",
                &annotations.ingress_rate,
                "ovn.kubernetes.io/ingress_rate",
            )?,
            egress: pick(
                &annotations.egress,
                "kubernetes.io/egress-bandwidth",
                &annotations.egress_rate,
                "ovn.kubernetes.io/egress_rate",
            )?,
        })
    }

    /// The policing rate of the pod's own traffic in kbit/s, 0 for none, and the burst (a tenth).
    pub fn policing(&self) -> (i64, i64) {
        let rate = i64::try_from(self.egress.unwrap_or(0) / 1000).unwrap_or(i64::MAX);
        (rate, rate / 10)
    }
}

fn judge(key: &'static str, value: &str, unit: u64) -> Result<u64, BandwidthError> {
    let text = value.trim();
    // Rates are plain numbers of Mbit/s; quantities may carry a suffix.
    let amount = if unit == 1 { quantity(text) } else { text.parse::<f64>().ok() };
    let amount =
        amount.ok_or_else(|| BandwidthError::NotAQuantity { key, value: value.to_owned() })? * unit as f64;
    let bits = amount.ceil();
    if bits < *RANGE.start() as f64 || bits > *RANGE.end() as f64 {
        return Err(BandwidthError::OutOfRange { key, value: value.to_owned() });
    }
    Ok(bits as u64)
}

/// A Kubernetes resource quantity: a decimal number with an SI or binary suffix or an exponent.
fn quantity(text: &str) -> Option<f64> {
    let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        "Ei" => 1024f64.powi(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            10f64.powi(exponent)
        }
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: &str, value: &str) -> Result<Limits, BandwidthError> {
        let mut a = BandwidthAnnotations::default();
        let slot = match key {
            "in" => &mut a.ingress,
            "out" => &mut a.egress,
            "in_rate" => &mut a.ingress_rate,
            _ => &mut a.egress_rate,
        };
        *slot = Some(value.to_owned());
        Limits::of(&a)
    }

    #[test]
    fn quantities_in_their_range_are_limits_of_the_right_direction() {
        for (text, bits) in
            [("1k", 1_000), ("10M", 10_000_000), ("1.5G", 1_500_000_000), ("1P", 1_000_000_000_000_000)]
        {
            assert_eq!(of("in", text), Ok(Limits { ingress: Some(bits), egress: None }));
            assert_eq!(of("out", text), Ok(Limits { ingress: None, egress: Some(bits) }));
        }
        assert_eq!(of("in", "1Mi").unwrap().ingress, Some(1_048_576));
        assert_eq!(of("in", "2e6").unwrap().ingress, Some(2_000_000));
        assert_eq!(of("in_rate", "3").unwrap().ingress, Some(3_000_000));
        assert_eq!(of("out_rate", "0.5").unwrap().egress, Some(500_000));
        assert_eq!(of("out", "20M").unwrap().policing(), (20_000, 2_000));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in ["999", "0", "-5M", "1001T", "2P", "1E"] {
            let error = of("in", text).unwrap_err().to_string();
            assert!(
                error.contains("kubernetes.io/ingress-bandwidth") && error.contains("1k to 1P"),
                "{error}"
            );
        }
        for text in ["", "fast", "10 M", "M", "1KB", "1e"] {
            assert!(matches!(of("out", text), Err(BandwidthError::NotAQuantity { .. })), "{text}");
        }
        let error = of("out_rate", "10M").unwrap_err().to_string();
        assert!(error.contains("ovn.kubernetes.io/egress_rate"), "{error}");
    }

    #[test]
    fn kubernetes_keys_win() {
        let a = BandwidthAnnotations {
            ingress: Some("5M".into()),
            ingress_rate: Some("9".into()),
            ..BandwidthAnnotations::default()
        };
        assert_eq!(Limits::of(&a).unwrap().ingress, Some(5_000_000));
    }
}
