//! Enumerations whose variants have a name for listings and, optionally, a number.

/// Defines an enumeration whose variants have a name.
///
/// The macro writes the type, `ALL` with all variants in the given order, a method that returns the
/// name, and `Display`, which pads the name. Optionally, it also writes a method that returns the
/// number and a function that returns the variant of a number.
///
/// ```
/// urxe_wire::named_enum! {
///     /// A direction.
///     #[derive(Clone, Copy, Debug, PartialEq, Eq)]
///     pub enum Direction: as_str, number -> u8, from_number(u32) {
///         /// Towards the peer.
///         Out = 1 => "out",
///         /// From the peer.
///         In = 2 => "in",
///     }
/// }
/// assert_eq!(Direction::ALL.map(Direction::as_str), ["out", "in"]);
/// assert_eq!(format!("{:>4}", Direction::In), "  in");
/// assert_eq!(Direction::ALL.map(Direction::number), [1, 2]);
/// assert_eq!(Direction::from_number(2), Some(Direction::In));
/// assert_eq!(Direction::from_number(258), None);
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $as_str:ident
        $(, $number:ident -> $int:ty $(, $from_number:ident($given:ty))?)? {
        $($(#[$doc:meta])* $variant:ident $(= $value:literal)? => $text:literal,)*
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$doc])* $variant $(= $value)?,)*
        }

        impl $name {
            /// All variants, in the order of their definition.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name.
            #[must_use]
            pub const fn $as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            $(
                /// Returns the number that the specification assigns.
                #[must_use]
                pub const fn $number(self) -> $int {
                    self as $int
                }

                $(
                    /// Returns the variant with this number, or `None` if there is no such variant.
                    #[must_use]
                    pub const fn $from_number(number: $given) -> Option<Self> {
                        let mut place = 0;
                        while place < Self::ALL.len() {
                            if Self::ALL[place] as $given == number {
                                return Some(Self::ALL[place]);
                            }
                            place += 1;
                        }
                        None
                    }
                )?
            )?
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.$as_str())
            }
        }
    };
}
