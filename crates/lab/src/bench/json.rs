//! Results as JSON: one object per line, all with `experiment`, `value` and `unit`.

use serde::Serialize;

/// The lines of an experiment.
pub struct Lines {
    experiment: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Line<'a, K, V> {
    experiment: &'a str,
    #[serde(flatten)]
    keys: K,
    value: V,
    unit: &'a str,
}

impl Lines {
    /// No line yet.
    pub fn new(experiment: &'static str) -> Lines {
        Lines { experiment, text: String::new() }
    }

    /// Adds a line. `keys` is a flat struct; to rename a field of it is to change the format.
    pub fn add(&mut self, keys: impl Serialize, value: impl Serialize, unit: &str) {
        let line = Line { experiment: self.experiment, keys, value, unit };
        self.text += &serde_json::to_string(&line).expect("a flat struct of numbers and strings");
        self.text.push('\n');
    }

    /// All lines, each with its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The lines, read back.
    #[cfg(test)]
    pub fn parsed(&self) -> Vec<serde_json::Value> {
        self.text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The sorted keys of a line.
    #[cfg(test)]
    pub fn keys(line: &serde_json::Value) -> Vec<&str> {
        let mut keys: Vec<&str> = line.as_object().expect("an object").keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys
    }
}
