//! The facts of a file: what it defines, imports, names and calls, all as written.
//!
//! `reader.rs` collects it, `names.rs` resolves it.

/// Segments of a path, as written.
pub type Segments = Vec<String>;

/// All of one file.
#[derive(Default)]
pub struct Facts {
    /// Names that modules of this file define.
    pub items: Vec<Item>,
    /// Modules of this file, inline ones too.
    pub modules: Vec<String>,
    /// Modules that the file declares for tests alone, by their full paths.
    pub test_modules: Vec<String>,
    /// Lines of `#[path = ...]` on a module that is not for tests.
    pub moved: Vec<usize>,
    /// Leaves of its `use` trees.
    pub uses: Vec<Use>,
    /// Paths in code and in the arguments of macros.
    pub named: Vec<Named>,
    /// Methods, associated functions and constants of types and traits.
    pub methods: Vec<Method>,
    /// Implementations of traits.
    pub impls: Vec<Impl>,
    /// Calls by name, `x.name(...)`.
    pub calls: Vec<Call>,
}

/// A definition that is no module.
pub struct Item {
    pub module: String,
    pub name: String,
    /// The other name, of a `type`.
    pub alias: Option<Segments>,
}

/// A leaf of a `use` tree.
pub struct Use {
    pub module: String,
    pub segments: Segments,
    /// The name that it brings; `*` for all.
    pub name: String,
    /// Whether others can use it from here.
    pub public: bool,
    pub line: usize,
}

/// A path in code.
pub struct Named {
    pub module: String,
    pub segments: Segments,
    pub line: usize,
}

/// A function or a constant in an `impl` or a `trait`.
pub struct Method {
    pub module: String,
    pub name: String,
    /// The type, or the trait that declares it; empty for what a macro makes.
    pub on: Segments,
    /// The trait, in an implementation of one.
    pub of: Option<Segments>,
    pub has_receiver: bool,
    /// The module in which it can be called; the top for `pub`.
    pub seen_in: String,
    pub line: usize,
}

/// `impl Trait<Arguments> for Type`.
pub struct Impl {
    pub module: String,
    pub on: Segments,
    pub of: Segments,
    pub arguments: Vec<Segments>,
    pub line: usize,
}

/// `x.name(...)`.
pub struct Call {
    pub name: String,
    pub line: usize,
}

/// `outer::name`, and `name` at the top.
pub fn join(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.into() } else { format!("{outer}::{name}") }
}
