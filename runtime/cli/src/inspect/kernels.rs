//! `runtime inspect --kernels`: what the plans of an engine run.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use serde::Serialize;
use tileforge_engine::manifest::PlanFigures;
use tileforge_engine::{Bundle, Engine};
use tileforge_tensorrt::{ElementType, Operation, OperationKind, Program};
use tileforge_terminal::{counted, print, print_json};

use crate::failure::{CommandResult, Failure};

/// One plan.
#[derive(Serialize)]
struct Shown {
    /// The plan's file in the engine's folder.
    plan: String,
    compute_capabilities: Vec<String>,
    /// The sums from the manifest.
    #[serde(skip)]
    figures: Option<PlanFigures>,
    /// What it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Program>,
    /// Why the program is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_known: Option<String>,
}

pub(super) fn run(bundle: &Bundle, json: bool) -> CommandResult {
    let mut plans = Vec::new();
    match bundle {
        Bundle::Engine(engine) => add(&mut plans, "", engine)?,
        Bundle::Pipeline(pipeline) => {
            pipeline.parts().try_for_each(|(part, engine)| add(&mut plans, &format!("{part}/"), engine))?;
        }
    }
    if plans.is_empty() {
        let reason = "--kernels: expected an engine with plans for RTX GPUs, found one without; build it for a profile \
                      such as rtx4090";
        return Err(Failure::Usage(reason.into()));
    }
    if json {
        print_json(&plans)?;
    } else {
        print(&plans.iter().map(Shown::text).collect::<Vec<_>>().join("\n\n"))?;
    }
    Ok(())
}

fn add(plans: &mut Vec<Shown>, part: &str, engine: &Engine) -> CommandResult {
    for plan in engine.manifest().graphs.iter().filter_map(|graph| graph.plan.as_ref()) {
        let path: PathBuf = engine.path_of(&plan.file);
        let mut file = File::open(&path).map_err(|source| Failure::File { path, action: "read", source })?;
        let (program, not_known) = match Program::read(&mut file) {
            Ok(program) => (Some(program), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (name, compute_capabilities) = (format!("{part}{}", plan.file), plan.compute_capabilities.clone());
        plans.push(Shown { plan: name, compute_capabilities, figures: plan.figures, program, not_known });
    }
    Ok(())
}

impl Shown {
    fn text(&self) -> String {
        let title = format!("{}, for compute {}", self.plan, self.compute_capabilities.join(", "));
        let Some(program) = &self.program else {
            return format!("{title}: {}", self.not_known.as_deref().unwrap_or_default());
        };
        let mut lines = vec![
            self.figures.map_or(title.clone(), |figures| format!("{title}: {}", figures_text(&figures))),
            "kernels     moved   products  type   what".into(),
        ];
        lines.extend(groups(&program.operations).iter().map(Group::line));
        lines.push("in the order in which they run, with the nodes that went into them:".into());
        lines.extend(program.operations.iter().map(|operation| {
            let Operation { kind, kernel, layers, .. } = operation;
            format!("{:>17}  {kind} {kernel}: {}", megabytes(operation.moved_bytes()), layers.join(" + "))
        }));
        lines.join("\n")
    }
}

/// "20 kernels, 183.0 MB moved, 19.93 G products, 25.5 MB of activations and 0.3 MB of weights, at least 0.064 ms".
pub(super) fn figures_text(figures: &PlanFigures) -> String {
    let PlanFigures { kernels, moved_bytes, multiply_adds, activation_bytes, weight_bytes, least_microseconds } =
        *figures;
    let least = least_microseconds.map_or(String::new(), |least| format!(", at least {:.3} ms", least as f64 / 1e3));
    format!(
        "{}, {} moved, {} products, {} of activations and {} of weights{least}",
        counted(kernels as usize, "kernel"),
        megabytes(moved_bytes),
        billions(multiply_adds),
        megabytes(activation_bytes),
        megabytes(weight_bytes)
    )
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn billions(count: u64) -> String {
    format!("{:.2} G", count as f64 / 1e9)
}

/// Kernels that compute the same in the same type.
struct Group<'o> {
    kind: OperationKind,
    kernel: &'o str,
    element: Option<ElementType>,
    count: usize,
    moved_bytes: u64,
    /// `None` if the number is unknown for one of the kernels.
    multiply_adds: Option<u64>,
}

/// The groups; the one that moves the most bytes comes first.
fn groups(operations: &[Operation]) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for operation in operations {
        let (kind, kernel, element) = (operation.kind, operation.kernel.as_str(), operation.element);
        let empty = Group { kind, kernel, element, count: 0, moved_bytes: 0, multiply_adds: Some(0) };
        let group = groups.entry((kind, kernel, element)).or_insert(empty);
        group.count += 1;
        group.moved_bytes = group.moved_bytes.saturating_add(operation.moved_bytes());
        let both = group.multiply_adds.zip(operation.multiply_adds);
        group.multiply_adds = both.map(|(sum, own)| sum.saturating_add(own));
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.moved_bytes));
    groups
}

impl Group<'_> {
    fn line(&self) -> String {
        let products = self.multiply_adds.map_or("not known".into(), billions);
        let element = self.element.map_or(String::new(), |element| element.to_string());
        let (moved, kind, kernel) = (megabytes(self.moved_bytes), self.kind, self.kernel);
        format!("{:>7} {moved:>10} {products:>10}  {element:<5}  {kind} {kernel}", self.count)
    }
}
