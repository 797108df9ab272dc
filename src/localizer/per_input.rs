//! Something for each input.

use super::Input;

/// One value for each [`Input`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerInput<T>([T; Input::ALL.len()]);

impl<T> PerInput<T> {
    /// The values that a function gives.
    pub fn new(of: impl FnMut(Input) -> T) -> Self {
        Self(Input::ALL.map(of))
    }

    /// The value of an input.
    pub fn get(&self, input: Input) -> &T {
        let [points, sights, pairs, clouds] = &self.0;
        match input {
            Input::Points3d3d => points,
            Input::Sights2d3d => sights,
            Input::Sights2d2d => pairs,
            Input::Points => clouds,
        }
    }

    /// The value of an input, to be changed.
    pub fn get_mut(&mut self, input: Input) -> &mut T {
        let [points, sights, pairs, clouds] = &mut self.0;
        match input {
            Input::Points3d3d => points,
            Input::Sights2d3d => sights,
            Input::Sights2d2d => pairs,
            Input::Points => clouds,
        }
    }

    /// All of them with their inputs.
    pub fn iter(&self) -> impl Iterator<Item = (Input, &T)> {
        Input::ALL.into_iter().zip(&self.0)
    }

    /// All of them, in the order of the inputs, to be changed.
    pub fn each_mut(&mut self) -> [&mut T; Input::ALL.len()] {
        self.0.each_mut()
    }

    /// All of them with their inputs, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Input, &mut T)> {
        Input::ALL.into_iter().zip(&mut self.0)
    }
}
