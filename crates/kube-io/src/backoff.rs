//! Capped exponential backoff without jitter: replays of a recorded history take the same waits.

use std::time::Duration;

/// Doubling delays from `first` to `cap`; [`Backoff::reset`] after a success.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `first` and never waits longer than `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, next: first }
    }

    /// The delay to wait now; the following one is twice as long, up to the cap.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next.min(self.cap);
        self.next = delay.saturating_mul(2).min(self.cap);
        delay
    }

    /// Back to the first delay.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_cap_and_starts_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));
        let delays: Vec<u128> = (0..5).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 500, 500]);
        backoff.reset();
        assert_eq!(backoff.next_delay().as_millis(), 100);
    }
}
