//! Which intervals to keep, so that what is kept fits at each step and saves most: the cheapest flow through the steps.
//!
//! Successive cheapest paths, all equally cheap ones at a time: the cost of a path is a whole number, within twice the number
//! of steps either way, and rises with each round, so the rounds are bounded. Each finds the distances with reduced costs
//! (Dijkstra), and then the largest flow along the cheapest paths (Dinic).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Something that may be kept over some steps, all of it or a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// The first step.
    pub(super) from: usize,
    /// The one after the last.
    pub(super) to: usize,
    /// What keeping one unit saves.
    pub(super) cost: u32,
    /// Units.
    pub(super) width: u64,
}

impl Interval {
    /// What keeping all of it saves.
    pub(super) fn worth(&self) -> u128 {
        u128::from(self.cost) * u128::from(self.width)
    }
}

/// The most that keeping intervals can save, if at each step no more is kept than is free.
pub(super) fn most_saved(free: &[u64], intervals: &[Interval]) -> u128 {
    if free.is_empty() {
        return 0;
    }
    let mut network = Network::new(free, intervals);
    let mut cost = 0;
    // All of it has to get through, also where that costs something: less would leave room where there is none.
    while let Some(dear) = network.find_cheapest() {
        cost += i128::from(network.send_all()) * i128::from(dear);
    }
    // To keep nothing costs nothing, so the cheapest is not above that.
    cost.min(0).unsigned_abs()
}

const NOWHERE: i64 = i64::MAX;

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: usize,
    left: u64,
    cost: i64,
}

/// Node `n` stands before step `n`; the two after the last are where the flow comes from and where it goes. The edge back
/// of edge `e` is `e ^ 1`.
struct Network {
    edges: Vec<Edge>,
    leaving: Vec<Vec<usize>>,
    potential: Vec<i64>,
    source: usize,
    sink: usize,
}

impl Network {
    fn new(free: &[u64], intervals: &[Interval]) -> Self {
        let (source, sink) = (free.len() + 1, free.len() + 2);
        let mut network = Self {
            edges: Vec::new(),
            leaving: vec![Vec::new(); free.len() + 3],
            potential: vec![NOWHERE; free.len() + 3],
            source,
            sink,
        };
        // Across each step goes what is free there: where that is more than before, some comes in, else some goes.
        for node in 0..=free.len() {
            let before = if node == 0 { 0 } else { free[node - 1] };
            let after = free.get(node).copied().unwrap_or(0);
            if after > before {
                network.join(source, node, after - before, 0);
            } else {
                network.join(node, sink, before - after, 0);
            }
            if node < free.len() {
                network.join(node, node + 1, after, 0);
            }
        }
        for interval in intervals {
            network.join(interval.from, interval.to, interval.width, -i64::from(interval.cost));
        }
        network.measure_forward();
        network
    }

    fn join(&mut self, from: usize, to: usize, left: u64, cost: i64) {
        if left > 0 {
            self.leaving[from].push(self.edges.len());
            self.edges.push(Edge { to, left, cost });
            self.leaving[to].push(self.edges.len());
            self.edges.push(Edge { to: from, left: 0, cost: -cost });
        }
    }

    /// The first distances: all edges go forward, so each node is final when its turn comes.
    fn measure_forward(&mut self) {
        self.potential[self.source] = 0;
        for node in std::iter::once(self.source).chain(0..self.source) {
            let here = self.potential[node];
            for &edge in &self.leaving[node] {
                let Edge { to, left, cost } = self.edges[edge];
                if left > 0 && here != NOWHERE {
                    self.potential[to] = self.potential[to].min(here + cost);
                }
            }
        }
    }

    /// Finds the cheapest paths that are left, and what a unit along them costs; nothing if all has got through.
    fn find_cheapest(&mut self) -> Option<i64> {
        let mut distance = vec![NOWHERE; self.leaving.len()];
        let mut open = BinaryHeap::from([Reverse((0, self.source))]);
        distance[self.source] = 0;
        while let Some(Reverse((far, node))) = open.pop() {
            if far > distance[node] {
                continue;
            }
            for &edge in &self.leaving[node] {
                let Edge { to, left, .. } = self.edges[edge];
                if left > 0 && far + self.reduced(node, edge) < distance[to] {
                    distance[to] = far + self.reduced(node, edge);
                    open.push(Reverse((distance[to], to)));
                }
            }
        }
        // Whoever cannot be reached now never will be: flow only opens ways back between those who can.
        for (potential, distance) in self.potential.iter_mut().zip(&distance) {
            *potential = if *distance == NOWHERE { NOWHERE } else { *potential + distance };
        }
        let cost = self.potential[self.sink];
        (cost != NOWHERE).then_some(cost)
    }

    /// What an edge costs beyond what its ends are apart: nothing on a cheapest path, never less than nothing.
    fn reduced(&self, from: usize, edge: usize) -> i64 {
        let Edge { to, cost, .. } = self.edges[edge];
        cost + self.potential[from] - self.potential[to]
    }

    /// Sends as much as goes along cheapest paths.
    fn send_all(&mut self) -> u64 {
        let mut sent = 0;
        loop {
            let levels = self.levels();
            if levels[self.sink] == usize::MAX {
                return sent;
            }
            let mut next = vec![0; self.leaving.len()];
            while let Some(path) = self.path(&levels, &mut next) {
                let width = path.iter().map(|&edge| self.edges[edge].left).min().unwrap_or(0);
                for edge in path {
                    self.edges[edge].left -= width;
                    self.edges[edge ^ 1].left += width;
                }
                sent += width;
            }
        }
    }

    fn is_open(&self, from: usize, edge: usize) -> bool {
        self.edges[edge].left > 0 && self.reduced(from, edge) == 0
    }

    /// How many open edges it takes to each node.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.leaving.len()];
        levels[self.source] = 0;
        let mut open = VecDeque::from([self.source]);
        while let Some(node) = open.pop_front() {
            for &edge in &self.leaving[node] {
                let to = self.edges[edge].to;
                if levels[to] == usize::MAX && self.is_open(node, edge) {
                    levels[to] = levels[node] + 1;
                    open.push_back(to);
                }
            }
        }
        levels
    }

    /// A path of open edges, each one level further. Edges before `next` lead nowhere any more.
    fn path(&self, levels: &[usize], next: &mut [usize]) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        let mut node = self.source;
        while node != self.sink {
            let further = |&edge: &usize| {
                let to = self.edges[edge].to;
                levels[to] != usize::MAX && levels[to] == levels[node] + 1 && self.is_open(node, edge)
            };
            let from = next[node];
            match self.leaving[node][from..].iter().position(further) {
                Some(skipped) => {
                    next[node] = from + skipped;
                    let edge = self.leaving[node][next[node]];
                    path.push(edge);
                    node = self.edges[edge].to;
                }
                None => {
                    next[node] = self.leaving[node].len();
                    node = self.edges[path.pop()? ^ 1].to;
                    next[node] += 1;
                }
            }
        }
        Some(path)
    }
}
