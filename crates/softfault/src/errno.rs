//! Linux's error numbers, for those who speak system calls.
//!
//! Inside the core errors are enums, one per operation; this is the border.

/// An error number as Linux on x86-64 has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Errno(pub i32);

#[allow(missing_docs)] // errno(3)
impl Errno {
    pub const EPERM: Errno = Errno(1);
    pub const EBADF: Errno = Errno(9);
    pub const EAGAIN: Errno = Errno(11);
    pub const ENOMEM: Errno = Errno(12);
    pub const EACCES: Errno = Errno(13);
    pub const EFAULT: Errno = Errno(14);
    pub const EEXIST: Errno = Errno(17);
    pub const EINVAL: Errno = Errno(22);
    pub const EOVERFLOW: Errno = Errno(75);
    pub const EOPNOTSUPP: Errno = Errno(95);

    /// As errno(3) spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Errno::EPERM => "EPERM",
            Errno::EBADF => "EBADF",
            Errno::EAGAIN => "EAGAIN",
            Errno::ENOMEM => "ENOMEM",
            Errno::EACCES => "EACCES",
            Errno::EFAULT => "EFAULT",
            Errno::EEXIST => "EEXIST",
            Errno::EINVAL => "EINVAL",
            Errno::EOVERFLOW => "EOVERFLOW",
            Errno::EOPNOTSUPP => "EOPNOTSUPP",
            Errno(_) => "errno",
        }
    }
}

/// Declares the error of one operation: variants, what each means, its errno.
macro_rules! op_error {
    ($(#[$doc:meta])* $name:ident { $($variant:ident: $errno:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum $name { $(#[doc = $text] $variant,)* }

        impl $name {
            /// Linux's number for it.
            pub const fn errno(self) -> $crate::errno::Errno {
                match self { $($name::$variant => $crate::errno::Errno::$errno),* }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $($name::$variant => $text),* })
            }
        }
        impl core::error::Error for $name {}
    };
}
pub(crate) use op_error;
