//! Enumerations whose variants have a name in listings.

/// Defines an enumeration, each variant beside its name.
///
/// The macro writes the type, `ALL` with every variant in the order given, a method that returns
/// the name, and `Display`, which pads the name.
///
/// ```
/// urxe_types::named_enum! {
///     /// A direction.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Direction: as_str {
///         /// Towards the peer.
///         Out = 1 => "out",
///         /// From the peer.
///         In = 2 => "in",
///     }
/// }
/// assert_eq!(Direction::ALL.map(Direction::as_str), ["out", "in"]);
/// assert_eq!(format!("{:>4}", Direction::In), "  in");
/// ```
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $as_str:ident {
        $($(#[$doc:meta])* $variant:ident $(= $number:literal)? => $text:literal,)*
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* $variant $(= $number)?,)*
        }

        impl $name {
            /// Every variant, in the order of their definition.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name.
            #[must_use]
            pub const fn $as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.$as_str())
            }
        }
    };
}
