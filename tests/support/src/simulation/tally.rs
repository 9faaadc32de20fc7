//! What runs showed, added up.

/// Numbers that can be added to others of their kind. [`tally!`](crate::tally) declares a struct of
/// them.
pub trait Tally {
    /// Adds what another run showed.
    fn add(&mut self, other: &Self);
}

macro_rules! number {
    ($($number:ty),*) => {
        $(impl Tally for $number {
            fn add(&mut self, other: &Self) {
                *self += other;
            }
        })*
    };
}

number!(u32, u64, usize);

impl<T: Tally, const N: usize> Tally for [T; N] {
    fn add(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(all, one)| all.add(one));
    }
}

/// Declares a struct of numbers that can be added up, of which a run begins with zeros.
#[macro_export]
macro_rules! tally {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$comment:meta])* $inner:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $name {
            $($(#[$comment])* $inner $field: $type,)*
        }

        impl $crate::simulation::Tally for $name {
            fn add(&mut self, other: &Self) {
                $($crate::simulation::Tally::add(&mut self.$field, &other.$field);)*
            }
        }
    };
}
