//! Makes wrong variants of the core from its syntax trees: a statement is left out, an ordering is weaker, a condition
//! always holds or never does, an operator is its neighbour.
//!
//! It changes the text, so that each variant keeps the lines of the file. A condition is still evaluated, and what a
//! statement would compute still has its type. Some variants do not compile; they are no mutants.

use super::items::{Items, sources};
use crate::lint::is_for_tests;
use serde::Deserialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Stmt};

const CORE: &str = "crates/softfault/src/";
/// The facades, of which a model has another one; the checkers and what only tests call.
const LEFT_OUT: [&str; 8] =
    ["built.rs", "check.rs", "check/", "hooks.rs", "hooks/", "sync/", "table/format/conformance.rs", "testing.rs"];

/// A variant of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    pub file: String,
    /// The path of the function.
    pub item: String,
    /// The change, and the line without its margin: unique in the item.
    pub what: String,
    pub line: usize,
    pub range: Range<usize>,
    pub to: String,
    /// Only a model of weak memory can notice it.
    pub is_ordering: bool,
}

/// Calls that change nothing but the time something takes.
#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    pub calls: Vec<String>,
    pub why: String,
}

impl Generated {
    /// A number for names of files, the same as long as the item and the line are.
    pub fn id(&self) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.item, &self.what).hash(&mut hasher);
        format!("g{:08x}", hasher.finish() as u32)
    }
}

/// All variants of the core.
pub fn of_core(top: &Path, idle: &[Idle]) -> Result<Vec<Generated>, String> {
    let items = Items::of_crate(top, "softfault")?;
    let mut all = Vec::new();
    for file in sources(top, CORE.trim_end_matches('/'))? {
        if !LEFT_OUT.iter().any(|out| file[CORE.len()..].starts_with(out)) {
            let text = std::fs::read_to_string(top.join(&file)).map_err(|e| format!("{file}: {e}"))?;
            all.extend(of_file(&file, &text, &items, idle)?);
        }
    }
    Ok(all)
}

fn of_file(file: &str, text: &str, items: &Items, idle: &[Idle]) -> Result<Vec<Generated>, String> {
    let tree = syn::parse_file(text).map_err(|e| format!("{file}: {e}"))?;
    if is_for_tests(&tree.attrs) {
        return Ok(Vec::new());
    }
    let mut maker = Maker { text, idle, made: Vec::new() };
    maker.visit_file(&tree);
    let mut nr_same: HashMap<(String, String), usize> = HashMap::new();
    let named = maker.made.into_iter().filter_map(|Change { range, to, what, is_ordering }| {
        let item = items.name(items.around(file, &range)?);
        let line = text[..range.start].matches('\n').count() + 1;
        let words: Vec<&str> = text.lines().nth(line - 1)?.split_whitespace().collect();
        let what = format!("{what}: {}", words.join(" "));
        let nr = nr_same.entry((item.clone(), what.clone())).or_default();
        *nr += 1;
        let what = if *nr > 1 { format!("{what} ({nr})") } else { what };
        Some(Generated { file: file.into(), item, what, line, range, to, is_ordering })
    });
    Ok(named.collect())
}

struct Change {
    range: Range<usize>,
    to: String,
    what: String,
    is_ordering: bool,
}

struct Maker<'a> {
    text: &'a str,
    idle: &'a [Idle],
    made: Vec<Change>,
}

impl Maker<'_> {
    fn make(&mut self, of: &impl Spanned, what: &str, to: impl FnOnce(&str) -> String) {
        let range = of.span().byte_range();
        let to = to(&self.text[range.clone()]);
        self.made.push(Change { range, to, what: what.into(), is_ordering: false });
    }

    fn condition(&mut self, condition: &Expr, may_hold: bool) {
        if has_let(condition) {
            return;
        }
        self.make(condition, "never", |text| format!("({text}) & false"));
        if may_hold {
            self.make(condition, "always", |text| format!("({text}) | true"));
        }
    }

    /// Whether a statement is a call or an assignment that something else could miss.
    fn is_needed(&self, statement: &Expr) -> bool {
        let is_idle = |name: String| self.idle.iter().any(|idle| idle.calls.contains(&name));
        match statement {
            Expr::MethodCall(call) => !is_idle(call.method.to_string()),
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => !path.path.segments.last().is_some_and(|name| is_idle(name.ident.to_string())),
                _ => true,
            },
            Expr::Try(inner) => self.is_needed(&inner.expr),
            Expr::Assign(_) => true,
            Expr::Binary(binary) => neighbour(&binary.op).is_none(),
            _ => false,
        }
    }
}

impl<'ast> Visit<'ast> for Maker<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item::{Fn, Impl, Mod, Trait};
        match item {
            Fn(i) if !is_for_tests(&i.attrs) => visit::visit_item_fn(self, i),
            Impl(i) if !is_for_tests(&i.attrs) => visit::visit_item_impl(self, i),
            Mod(i) if !is_for_tests(&i.attrs) => visit::visit_item_mod(self, i),
            Trait(i) => visit::visit_item_trait(self, i),
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        match item {
            // Texts for people.
            syn::ImplItem::Fn(i) if i.sig.ident != "fmt" && !is_for_tests(&i.attrs) => {
                visit::visit_impl_item_fn(self, i);
            }
            _ => {}
        }
    }

    /// Lengths of arrays and the like.
    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(of, Some(_)) = statement
            && self.is_needed(of)
        {
            self.make(statement, "without", |text| format!("if false {{ {text} }}"));
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, of: &'ast syn::ExprIf) {
        self.condition(&of.cond, true);
        visit::visit_expr_if(self, of);
    }

    fn visit_expr_while(&mut self, of: &'ast syn::ExprWhile) {
        self.condition(&of.cond, false);
        visit::visit_expr_while(self, of);
    }

    fn visit_pat_guard(&mut self, of: &'ast syn::PatGuard) {
        self.condition(&of.guard, true);
        visit::visit_pat_guard(self, of);
    }

    fn visit_expr_binary(&mut self, of: &'ast syn::ExprBinary) {
        if let Some((name, to)) = neighbour(&of.op)
            && !(has_let(&of.left) || has_let(&of.right))
        {
            self.make(&of.op, &format!("{name} is {to}"), |_| to.into());
        }
        visit::visit_expr_binary(self, of);
    }

    fn visit_expr_path(&mut self, of: &'ast syn::ExprPath) {
        let parts: Vec<String> = of.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [.., kind, order] = &parts[..]
            && kind == "Ordering"
        {
            for weaker in weaker(order) {
                self.make(of, &format!("{order} is {weaker}"), |text| text.replace(order.as_str(), weaker));
                self.made.last_mut().expect("one was made").is_ordering = true;
            }
        }
    }
}

fn weaker(order: &str) -> &'static [&'static str] {
    match order {
        "Acquire" | "Release" => &["Relaxed"],
        "AcqRel" => &["Acquire", "Release"],
        "SeqCst" => &["AcqRel"],
        _ => &[],
    }
}

/// An operator and the one next to it; none for an assignment.
fn neighbour(of: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match of {
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::And(_) => ("&&", "||"),
        BinOp::Or(_) => ("||", "&&"),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        BinOp::Mul(_) => ("*", "/"),
        BinOp::Div(_) => ("/", "*"),
        BinOp::Rem(_) => ("%", "/"),
        BinOp::BitAnd(_) => ("&", "|"),
        BinOp::BitOr(_) => ("|", "&"),
        BinOp::BitXor(_) => ("^", "|"),
        BinOp::Shl(_) => ("<<", ">>"),
        BinOp::Shr(_) => (">>", "<<"),
        _ => return None,
    })
}

fn has_let(of: &Expr) -> bool {
    match of {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(body: &str) -> Vec<(String, String)> {
        let text = format!("impl Fault {{\n    fn go(&self) {{\n        {body}\n    }}\n}}\n");
        let mut items = Items::default();
        items.add("crates/softfault/src/fault.rs", &text).unwrap();
        let idle = [Idle { calls: vec!["step".into()], why: "time".into() }];
        let all = of_file("crates/softfault/src/fault.rs", &text, &items, &idle).unwrap();
        let whole = |g: &Generated| format!("{}{}{}", &text[..g.range.start], g.to, &text[g.range.end..]);
        let line = |g: &Generated| whole(g).lines().nth(2).unwrap().trim().to_string();
        assert!(all.iter().all(|g| g.item == "Fault::go" && g.line == 3));
        all.iter().map(|g| (g.what.split(": ").next().unwrap().to_string(), line(g))).collect()
    }

    fn lines(body: &str) -> Vec<String> {
        made(body).into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn a_statement_is_left_out() {
        assert_eq!(lines("self.wait();"), ["if false { self.wait(); }"]);
        assert_eq!(lines("self.nr += 1;"), ["if false { self.nr += 1; }"]);
        assert_eq!(lines("self.take()?;"), ["if false { self.take()?; }"]);
        assert!(lines("pace.step(); assert!(a < b); return;").is_empty());
    }

    #[test]
    fn an_ordering_is_weaker() {
        assert_eq!(lines("let a = w.load(Ordering::Acquire);"), ["let a = w.load(Ordering::Relaxed);"]);
        assert_eq!(made("let a = w.swap(1, Ordering::AcqRel);").len(), 2);
        assert!(made("a(Ordering::Relaxed)").is_empty());
    }

    #[test]
    fn a_condition_holds_always_or_never() {
        let expected = ["if (self.is_free()) & false {}", "if (self.is_free()) | true {}"];
        assert_eq!(lines("if self.is_free() {}"), expected);
        assert!(lines("if let Some(a) = b && c {}").is_empty());
        let names: Vec<String> = made("while a < b {}").into_iter().map(|(what, _)| what).collect();
        assert_eq!(names, ["never", "< is <="]);
    }

    #[test]
    fn the_same_change_of_a_line_has_a_number() {
        let text = "fn go() { a(b + c + d) }\n";
        let mut items = Items::default();
        items.add("crates/softfault/src/fault.rs", text).unwrap();
        let all = of_file("crates/softfault/src/fault.rs", text, &items, &[]).unwrap();
        let names: Vec<&str> = all.iter().map(|g| g.what.as_str()).collect();
        assert_eq!(names, ["+ is -: fn go() { a(b + c + d) }", "+ is -: fn go() { a(b + c + d) } (2)"]);
        assert_ne!(all[0].id(), all[1].id());
    }
}
