//! `process_*`: the process itself, read from /proc at each scrape.

use super::registry::Declare;
use std::fs;

/// Ticks a second in /proc, fixed in Linux' interface to programs.
const TICKS: f64 = 100.0;

pub(super) fn declare(d: &mut Declare<'_>) {
    let cpu = d.float_counter("process_cpu_seconds_total", "CPU time of the process, in seconds.");
    let resident = d.gauge("process_resident_memory_bytes", "Memory of the process that is in RAM.");
    let peak = d.gauge("process_peak_resident_memory_bytes", "Most memory of the process that was in RAM.");
    let mapped = d.gauge("process_virtual_memory_bytes", "Address space of the process.");
    let threads = d.gauge("process_threads", "Threads of the process.");
    let started = d.gauge("process_start_time_seconds", "UNIX time at which the process started.");
    let open = d.gauge("process_open_fds", "Open file descriptors.");
    let most = d.gauge("process_max_fds", "Most file descriptors that may be open.");
    d.hook(move || {
        if let Some(stat) = read_stat() {
            cpu.inc_by((stat.cpu_seconds - cpu.get()).max(0.0));
            started.set(stat.started);
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (key, unit, gauge) in [
            ("VmRSS:", 1024.0, &resident),
            ("VmHWM:", 1024.0, &peak),
            ("VmSize:", 1024.0, &mapped),
            ("Threads:", 1.0, &threads),
        ] {
            if let Some(value) = field(&status, key) {
                gauge.set(value * unit);
            }
        }
        if let Ok(dir) = fs::read_dir("/proc/self/fd") {
            // The directory that is being read is one of them.
            open.set(dir.count().saturating_sub(1) as f64);
        }
        if let Some(limit) =
            field(&fs::read_to_string("/proc/self/limits").unwrap_or_default(), "Max open files")
        {
            most.set(limit);
        }
    });
}

/// First number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

struct Stat {
    cpu_seconds: f64,
    started: f64,
}

fn read_stat() -> Option<Stat> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; fields count from after it, the state being the third.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |nth: usize| fields.get(nth - 3)?.parse::<f64>().ok();
    let boot = field(&fs::read_to_string("/proc/stat").ok()?, "btime")?;
    Some(Stat { cpu_seconds: (number(14)? + number(15)?) / TICKS, started: boot + number(22)? / TICKS })
}
