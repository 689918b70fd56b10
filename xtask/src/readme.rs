//! `cargo xtask readme`: runs the commands in the README and `docs/commands.md`.
//!
//! A command is a line that starts with `$ ` in a `console` block; other lines are output.
//! The commands of a block share a shell, so `cd` works. The first failure ends its block.

use crate::shell::{self, Line};

/// Commands that would start the gate that is running these commands.
const OF_THE_GATE: [&str; 3] = ["cargo xtask check", "bash .ci/run", ".ci/run"];

/// The documents with commands.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/commands.md"];

/// Runs all of them.
pub fn run() -> Result<(), String> {
    let failed: Result<Vec<Vec<String>>, String> = DOCUMENTS.iter().map(|document| run_all(document)).collect();
    let failed = failed?.concat();
    if failed.is_empty() { Ok(()) } else { Err(format!("these fail: {}", failed.join(" | "))) }
}

/// Runs the commands of a document and gives those that failed.
fn run_all(document: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(shell::top().join(document)).map_err(|e| format!("{document}: {e}"))?;
    let blocks = blocks(&text);
    if blocks.is_empty() {
        return Err(format!("{document}: should have at least one ```console block with a `$ ` line"));
    }
    let mut failed = Vec::new();
    for commands in blocks {
        let (own, rest): (Vec<_>, Vec<_>) = commands.into_iter().partition(|c| OF_THE_GATE.contains(&c.as_str()));
        own.iter().for_each(|command| println!("readme: `{command}` is not run from inside itself"));
        if rest.is_empty() {
            continue;
        }
        let mut bash = Line::new("bash", "-euo pipefail -x -c");
        bash.args(&[rest.join("\n")]);
        if shell::run(&bash).is_err() {
            failed.push(format!("{document}: {}", rest.join("; ")));
        }
    }
    Ok(failed)
}

/// The commands of each `console` block.
fn blocks(text: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<String>> = None;
    for line in text.lines() {
        match &mut open {
            None if line.trim() == "```console" => open = Some(Vec::new()),
            None => {}
            Some(_) if line.trim() == "```" => blocks.extend(open.take()),
            Some(commands) => commands.extend(line.trim_start().strip_prefix("$ ").map(String::from)),
        }
    }
    blocks.retain(|commands| !commands.is_empty());
    blocks
}

#[cfg(test)]
mod tests {
    use super::blocks;

    #[test]
    fn commands_and_not_their_output() {
        let text = "x\n```console\n$ cargo run --release\noutput $ 1\n$ echo b\n```\n```sh\n$ no\n```\n```console\nonly output\n```\n";
        assert_eq!(blocks(text), vec![vec!["cargo run --release".to_string(), "echo b".into()]]);
    }
}
