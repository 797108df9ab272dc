//! A world of blocks and columns on a floor, with or without a ceiling, and rays cast into it.

use crate::geometry::{Point, Vector};

/// What a surface belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The floor.
    Floor,
    /// The ceiling.
    Ceiling,
    /// A piece of wall beside or above doors.
    Wall,
    /// A jamb or the head of a door frame.
    DoorFrame,
    /// A flat column that stands out of a wall.
    Pilaster,
    /// A round column that stands free.
    Pillar,
    /// A table: top and four legs.
    Table,
    /// A chair: seat, back and four legs.
    Chair,
    /// A shelf against a wall, as high as a person.
    Shelf,
    /// A low cabinet against a wall.
    Cabinet,
    /// A box that stands anywhere.
    Crate,
    /// An upright or a shelf of a pallet rack.
    Rack,
    /// A pallet and what stands on it.
    Load,
    /// A parked car: body and cabin.
    Car,
    /// A tree: trunk and crown.
    Tree,
    /// A post, a lamp.
    Pole,
    /// A low edge: kerb, guard rail, step.
    Kerb,
    /// A cable tray or a pipe along a wall.
    Duct,
    /// Somebody who walks.
    Person,
}

impl Kind {
    /// It stands where somebody put it and may put it elsewhere.
    pub fn movable(self) -> bool {
        matches!(
            self,
            Kind::Table | Kind::Chair | Kind::Shelf | Kind::Cabinet | Kind::Crate | Kind::Load | Kind::Car
        )
    }
}

/// The form of a solid, about its own centre.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// A block with these half edges, turned about the vertical.
    Block(Vector),
    /// An upright cylinder.
    Column {
        /// radius, m
        radius: f64,
        /// half the height, m
        half_height: f64,
    },
}

/// A solid thing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Solid {
    /// What it is, or is a part of.
    pub kind: Kind,
    /// Which part (leg, top, left jamb).
    pub part: u8,
    /// Its centre.
    pub center: Point,
    /// Cosine and sine of its yaw.
    pub turn: [f64; 2],
    /// Its form.
    pub form: Form,
}

impl Solid {
    /// A point of the world in the solid's own axes.
    pub fn to_local(&self, p: &Point) -> Vector {
        self.turn_to_local(&(p - self.center))
    }

    /// A point in the solid's own axes in the world.
    pub fn to_world(&self, v: &Vector) -> Point {
        self.center + self.turn_to_world(v)
    }

    fn turn_to_local(&self, v: &Vector) -> Vector {
        let [c, s] = self.turn;
        Vector::new(c * v.x + s * v.y, c * v.y - s * v.x, v.z)
    }

    fn turn_to_world(&self, v: &Vector) -> Vector {
        let [c, s] = self.turn;
        Vector::new(c * v.x - s * v.y, s * v.x + c * v.y, v.z)
    }

    /// Half edges of the block, turned with it, that holds the solid.
    pub fn half(&self) -> Vector {
        match self.form {
            Form::Block(half) => half,
            Form::Column { radius, half_height } => Vector::new(radius, radius, half_height),
        }
    }

    /// Horizontal distance from a point; 0 within.
    pub fn distance(&self, x: f64, y: f64) -> f64 {
        let p = self.to_local(&Point::new(x, y, self.center.z));
        match self.form {
            Form::Block(half) => (p.x.abs() - half.x).max(0.0).hypot2((p.y.abs() - half.y).max(0.0)),
            Form::Column { radius, .. } => (p.x.hypot2(p.y) - radius).max(0.0),
        }
    }

    /// The discs around both overlap, and so do their heights: they may touch.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let reach = |s: &Self| s.half().x.hypot2(s.half().y);
        let apart = (self.center.z - other.center.z).abs() - self.half().z - other.half().z;
        apart < 0.0 && self.distance(other.center.x, other.center.y) < reach(other)
    }

    /// Range and normal where a ray enters, if it does within `max`.
    pub fn cast(&self, origin: &Point, direction: &Vector, max: f64) -> Option<(f64, Vector)> {
        let o = self.to_local(origin);
        let d = self.turn_to_local(direction);
        let (range, normal) = match self.form {
            Form::Block(half) => cast_block(&o, &d, &half)?,
            Form::Column { radius, half_height } => cast_column(&o, &d, radius, half_height)?,
        };
        (range > 0.0 && range < max).then(|| (range, self.turn_to_world(&normal)))
    }
}

/// `hypot` of the platform may differ in the last bit from machine to machine; this does not.
trait Hypot2 {
    fn hypot2(self, other: f64) -> f64;
}

impl Hypot2 for f64 {
    fn hypot2(self, other: f64) -> f64 {
        (self * self + other * other).sqrt()
    }
}

fn cast_block(o: &Vector, d: &Vector, half: &Vector) -> Option<(f64, Vector)> {
    let (mut enter, mut leave, mut axis) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for i in 0..3 {
        if d[i] == 0.0 {
            if o[i].abs() > half[i] {
                return None;
            }
            continue;
        }
        let near = (-half[i].copysign(d[i]) - o[i]) / d[i];
        let far = (half[i].copysign(d[i]) - o[i]) / d[i];
        if near > enter {
            (enter, axis) = (near, i);
        }
        leave = leave.min(far);
    }
    let mut normal = Vector::zeros();
    normal[axis] = -1f64.copysign(d[axis]);
    (enter < leave && enter > 0.0).then_some((enter, normal))
}

fn cast_column(o: &Vector, d: &Vector, radius: f64, half_height: f64) -> Option<(f64, Vector)> {
    let a = d.x * d.x + d.y * d.y;
    let b = o.x * d.x + o.y * d.y;
    let c = o.x * o.x + o.y * o.y - radius * radius;
    let root = b * b - a * c;
    if a > 0.0 && root > 0.0 && c > 0.0 {
        let t = (-b - root.sqrt()) / a;
        if t > 0.0 && (o.z + t * d.z).abs() <= half_height {
            return Some((t, Vector::new((o.x + t * d.x) / radius, (o.y + t * d.y) / radius, 0.0)));
        }
    }
    // The cap that faces the ray.
    let t = (-half_height.copysign(d.z) - o.z) / d.z;
    let (x, y) = (o.x + t * d.x, o.y + t * d.y);
    (t > 0.0 && x * x + y * y <= radius * radius).then(|| (t, Vector::new(0.0, 0.0, -1f64.copysign(d.z))))
}

/// Where a ray ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Distance along the ray, m.
    pub range: f64,
    /// Outward normal of the surface.
    pub normal: Vector,
    /// Index of the solid in [`World::solids`]; `None` for something that moves.
    pub solid: Option<u32>,
}

/// Edge of a grid cell, m.
const CELL: f64 = 1.0;

/// The cell of a coordinate among `n`; the first or the last beyond them.
fn cell_of(v: f64, n: usize) -> usize {
    ((v / CELL).max(0.0) as usize).min(n.saturating_sub(1))
}

/// The solids that stand still, in a grid.
#[derive(Debug, Clone)]
pub struct World {
    solids: Vec<Solid>,
    size: [f64; 2],
    ceiling: Option<f64>,
    columns: usize,
    rows: usize,
    cells: Vec<Vec<u32>>,
}

impl World {
    /// A world over `[0, length] x [0, width]`; a floor is added, and a ceiling at this height.
    pub fn new(
        [length, width]: [f64; 2],
        ceiling: Option<f64>,
        things: impl IntoIterator<Item = Solid>,
    ) -> Self {
        let slab = |kind, z| Solid {
            kind,
            part: 0,
            center: Point::new(length / 2.0, width / 2.0, z),
            turn: [1.0, 0.0],
            form: Form::Block(Vector::new(length / 2.0 + 1.0, width / 2.0 + 1.0, 0.1)),
        };
        let mut solids = vec![slab(Kind::Floor, -0.1)];
        solids.extend(ceiling.map(|height| slab(Kind::Ceiling, height + 0.1)));
        let slabs = solids.len();
        solids.extend(things);
        let columns = (length / CELL) as usize + 1;
        let rows = (width / CELL) as usize + 1;
        let mut cells = vec![Vec::new(); columns * rows];
        for (index, solid) in solids.iter().enumerate().skip(slabs) {
            let half = solid.half();
            let [c, s] = solid.turn.map(f64::abs);
            let reach = [c * half.x + s * half.y, s * half.x + c * half.y];
            let span = |center: f64, reach: f64, n| cell_of(center - reach, n)..=cell_of(center + reach, n);
            for row in span(solid.center.y, reach[1], rows) {
                for column in span(solid.center.x, reach[0], columns) {
                    cells[row * columns + column].push(index as u32);
                }
            }
        }
        Self { solids, size: [length, width], ceiling, columns, rows, cells }
    }

    /// The same floor and ceiling with other things.
    pub(super) fn with(&self, things: Vec<Solid>) -> Self {
        Self::new(self.size, self.ceiling, things)
    }

    /// Everything that stands still, floor and ceiling first.
    pub fn solids(&self) -> &[Solid] {
        &self.solids
    }

    /// All but floor and ceiling.
    pub fn things(&self) -> &[Solid] {
        &self.solids[self.slabs()..]
    }

    /// Floor and ceiling, or floor alone: the first of the solids.
    fn slabs(&self) -> usize {
        1 + usize::from(self.ceiling.is_some())
    }

    /// A solid by its index.
    pub fn solid(&self, index: u32) -> Option<&Solid> {
        self.solids.get(index as usize)
    }

    /// Distance over the floor from a point to the nearest thing that is lower than `below`.
    pub fn clearance(&self, x: f64, y: f64, below: f64) -> f64 {
        self.things()
            .iter()
            .filter(|s| s.center.z - s.half().z < below)
            .map(|s| s.distance(x, y))
            .fold(f64::INFINITY, f64::min)
    }

    /// No thing lower than `below` is as near to a point as `by`, over the floor.
    pub(super) fn is_clear(&self, x: f64, y: f64, below: f64, by: f64) -> bool {
        let cells = |v: f64, n: usize| cell_of(v - by, n)..=cell_of(v + by, n);
        cells(y, self.rows).all(|row| {
            cells(x, self.columns).all(|column| {
                let things = self.cells.get(row * self.columns + column).into_iter().flatten();
                let mut things = things.filter_map(|index| self.solid(*index));
                things.all(|s| s.center.z - s.half().z >= below || s.distance(x, y) > by)
            })
        })
    }

    /// Level ground without an end, and nothing on it.
    pub(super) fn open_field() -> Self {
        let half = Vector::new(1e4, 1e4, 0.1);
        let mut field = Self::new([CELL; 2], None, []);
        field.solids.iter_mut().for_each(|floor| floor.form = Form::Block(half));
        field
    }

    /// The first surface that a ray meets within `max`. `direction` has length 1.
    pub fn cast(&self, origin: &Point, direction: &Vector, max: f64) -> Option<Hit> {
        let mut best: Option<Hit> = None;
        let mut limit = max;
        let mut try_solid = |index: u32, limit: &mut f64| {
            let found = self.solid(index).and_then(|s| s.cast(origin, direction, *limit));
            if let Some((range, normal)) = found {
                *limit = range;
                best = Some(Hit { range, normal, solid: Some(index) });
            }
        };
        let slab = usize::from(direction.z > 0.0);
        if slab < self.slabs() {
            try_solid(slab as u32, &mut limit);
        }

        // Cell by cell along the ray (Amanatides and Woo 1987).
        let mut cell = [(origin.x / CELL).floor() as i64, (origin.y / CELL).floor() as i64];
        let mut next = [f64::INFINITY; 2];
        let mut delta = [f64::INFINITY; 2];
        for i in 0..2 {
            if direction[i] != 0.0 {
                let edge = (cell[i] + i64::from(direction[i] > 0.0)) as f64 * CELL;
                next[i] = (edge - origin[i]) / direction[i];
                delta[i] = CELL / direction[i].abs();
            }
        }
        while let Some(indices) = self.cell(cell) {
            for index in indices {
                try_solid(*index, &mut limit);
            }
            let axis = usize::from(next[1] < next[0]);
            if next[axis] >= limit {
                break;
            }
            cell[axis] += if direction[axis] > 0.0 { 1 } else { -1 };
            next[axis] += delta[axis];
        }
        best
    }

    fn cell(&self, [column, row]: [i64; 2]) -> Option<&Vec<u32>> {
        let column = usize::try_from(column).ok().filter(|c| *c < self.columns)?;
        let row = usize::try_from(row).ok().filter(|r| *r < self.rows)?;
        self.cells.get(row * self.columns + column)
    }
}
