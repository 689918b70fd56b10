//! The machine that measures.

use crate::shell::{self, Line};
use serde::{Deserialize, Serialize};

/// The machine's properties, and the day of its figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor: its name alone may mean several generations, so that family and model belong to it.
    pub cpu: String,
    /// CPUs that the measuring process may use.
    pub nr_cpus: usize,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// The host's kernel.
    pub kernel: String,
    /// The day, in UTC.
    pub date: String,
    /// Which ways of zeroing it has, besides plain and non-temporal stores.
    #[serde(skip)]
    ways: String,
}

impl Machine {
    /// Looks at this one.
    pub fn this() -> Result<Machine, String> {
        let info = read("/proc/cpuinfo")?;
        let nr_cpus = std::thread::available_parallelism().map_err(|e| e.to_string())?.get();
        let line = |program, arguments| {
            shell::output_of(&Line::new(program, arguments)).map(|text: String| text.trim().to_string())
        };
        Ok(Machine {
            cpu: cpu(&info),
            nr_cpus,
            is_virtual: has_flag(&info, "hypervisor"),
            kernel: line("uname", "-sr")?,
            date: line("date", "-u +%F")?,
            ways: ways(&info),
        })
    }

    /// The folder of its rows.
    pub fn folder(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let text: String = format!("{} {} cpus", self.cpu, self.nr_cpus).chars().map(plain).collect();
        text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }

    /// For the head of a table.
    pub fn text(&self) -> String {
        let Machine { cpu, nr_cpus, kernel, date, .. } = self;
        let kind = if self.is_virtual { " of a virtual machine" } else { "" };
        format!("{cpu}, {nr_cpus} CPUs{kind}, {kernel}, {date}")
    }

    /// The arguments of a run: `{ways}` becomes the list of this machine's ways of zeroing, and `{threads}` the numbers of
    /// threads.
    pub fn fill_in(&self, arguments: &str) -> String {
        let threads = match self.nr_cpus {
            1 => "1".into(),
            2 => "1,2".into(),
            more => format!("1,2,{}", more.min(64)),
        };
        arguments.replace("{ways}", &self.ways).replace("{threads}", &threads)
    }

    /// Others' work shows in every figure that is timed.
    pub fn warn_if_busy(&self) {
        let load = read("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        if let Some(load) = load.filter(|load| *load > 0.5) {
            eprintln!("measure: the load is {load}: should be near 0, or times are of this machine and its other work");
        }
    }
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))
}

/// The value of a line of `/proc/cpuinfo`, of the first CPU.
fn value<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(k, v)| (k.trim(), v.trim())).find(|(k, _)| *k == key).map(|(_, v)| v)
}

fn has_flag(info: &str, flag: &str) -> bool {
    value(info, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == flag))
}

fn cpu(info: &str) -> String {
    let name = value(info, "model name").unwrap_or("unknown");
    match (value(info, "cpu family"), value(info, "model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.into(),
    }
}

fn ways(info: &str) -> String {
    let optional = [("avx2", "vector"), ("clzero", "clzero")];
    let has = optional.into_iter().filter(|(flag, _)| has_flag(info, flag)).map(|(_, way)| way);
    ["auto", "stores", "streaming"].into_iter().chain(has).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str =
        "processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 hypervisor\n";

    #[test]
    fn what_cpuinfo_says() {
        assert_eq!(cpu(INFO), "AMD EPYC (family 26, model 2)");
        assert_eq!(ways(INFO), "auto,stores,streaming,vector");
        assert!(has_flag(INFO, "hypervisor") && !has_flag(INFO, "avx"));
        assert_eq!(cpu("processor : 0\n"), "unknown");
    }

    #[test]
    fn a_folder_for_each_kind_of_machine() {
        let machine = |cpu: &str, nr_cpus| Machine {
            cpu: cpu.into(),
            nr_cpus,
            is_virtual: false,
            kernel: "Linux 6".into(),
            date: "2026-11-23".into(),
            ways: "auto".into(),
        };
        assert_eq!(machine("AMD EPYC (family 26, model 2)", 2).folder(), "amd-epyc-family-26-model-2-2-cpus");
        assert_ne!(machine("a", 2).folder(), machine("a", 4).folder());
        assert_eq!(machine("a", 4).fill_in("pft -t {threads} --zeroing {ways}"), "pft -t 1,2,4 --zeroing auto");
    }
}
