//! Setters of values that users fill in: fields are added to them, so that outside the
//! crate they begin with a default and change one field after the other.

/// Declares methods that give the same value with another field.
macro_rules! setters {
    ($name:ident { $($with:ident: $field:ident = $type:ty,)* }) => {
        impl $name {
            $(
                #[doc = concat!("The same with another [`", stringify!($field), "`](", stringify!($name), "::", stringify!($field), ").")]
                #[must_use]
                pub const fn $with(mut self, $field: $type) -> $name {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;
