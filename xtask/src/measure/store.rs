//! The rows as they are kept: one file for each experiment and machine, a row a line.

use super::experiments::Experiment;
use super::machine::Machine;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The folder of what does not depend on the machine.
pub const ANY: &str = "any";

/// A row: what the laboratory says of one thing, without what no table shows.
pub type Row = BTreeMap<String, Value>;

/// The rows of one command.
#[derive(Debug, Deserialize)]
pub struct Run {
    /// As it was typed.
    pub command: String,
    /// In the order of the output.
    pub rows: Vec<Row>,
}

/// An experiment on one machine.
#[derive(Debug, Deserialize)]
pub struct Measured {
    /// Where and when.
    pub machine: Machine,
    /// The command.
    pub runs: Vec<Run>,
}

/// All that is stored: by experiment, then by folder of the machine.
pub type Stored = BTreeMap<String, BTreeMap<String, Measured>>;

/// Reads what the laboratory printed.
pub fn rows(text: &str, experiment: &Experiment) -> Result<Vec<Row>, String> {
    let row = |line: &str| {
        let mut row: Row = serde_json::from_str(line).map_err(|e| format!("{}: {e}: {line}", experiment.name))?;
        row.retain(|key, value| !value.is_null() && experiment.shows(key));
        row.values_mut().for_each(round);
        Ok(row)
    };
    let rows: Result<Vec<Row>, String> = text.lines().map(row).collect();
    Ok(rows?.into_iter().filter(|row| !row.is_empty()).collect())
}

/// Five digits: more than any of these figures is worth.
fn round(value: &mut Value) {
    if let Some(number) = value.as_f64().filter(|_| !value.is_u64() && !value.is_i64()) {
        *value = format!("{number:.4e}").parse::<f64>().map_or(Value::Null, Value::from);
    }
}

impl Measured {
    /// Writes the file, a row a line so that a difference shows as one.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
        let json = |value: &dyn Fn() -> serde_json::Result<String>| value().map_err(|e| failed(&e));
        let mut text = format!("{{\"machine\": {},\n\"runs\": [", json(&|| serde_json::to_string(&self.machine))?);
        for (i, run) in self.runs.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            text +=
                &format!("{comma}\n{{\"command\": {}, \"rows\": [\n", json(&|| serde_json::to_string(&run.command))?);
            let rows: Result<Vec<String>, String> =
                run.rows.iter().map(|row| json(&|| serde_json::to_string(row))).collect();
            text += &format!("{}\n]}}", rows?.join(",\n"));
        }
        text += "\n]}\n";
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder).map_err(|e| failed(&e))?;
        std::fs::write(file, text).map_err(|e| failed(&e))
    }
}

/// Reads all files.
pub fn load(folder: &Path) -> Result<Stored, String> {
    let mut stored = Stored::new();
    for machine in entries(folder)?.iter().filter(|entry| entry.is_dir()) {
        for file in entries(machine)?.iter().filter(|file| file.extension().is_some_and(|e| e == "json")) {
            let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
            let text = std::fs::read_to_string(file).map_err(|e| failed(&e))?;
            let measured: Measured = serde_json::from_str(&text).map_err(|e| failed(&e))?;
            let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            stored.entry(name(file)).or_default().insert(name(machine), measured);
        }
    }
    Ok(stored)
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_digits_and_whole_numbers() {
        let rounded = |text: &str| {
            let mut value: Value = serde_json::from_str(text).unwrap();
            round(&mut value);
            value.to_string()
        };
        assert_eq!(["16.234567", "1234567", "0.0"].map(rounded), ["16.235", "1234567", "0.0"]);
    }
}
