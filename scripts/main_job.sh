# The demo's main job with an installed release, for scripts that try releases. They define `run PROGRAM ARGUMENT…`.
# main_job SHARE WORK: SHARE is the release's share/tileforge, WORK a folder for the engine and the picture.
main_job() {
    local share=$1 work=$2
    run runtime doctor
    run engine-builder build "$share/models/compact-x4.yaml" --profile cpu -o "$work/engine"
    run runtime verify --engine "$work/engine"
    run runtime infer --engine "$work/engine" --input "$share/coffee.png" --output "$work/coffee-x4.png"
    run runtime evaluate --engine "$work/engine" --input "$share/coffee.png" --minimum-gain 0.8
}
