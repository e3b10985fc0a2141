# shellcheck shell=bash disable=SC2154,SC2034 # variables of the script that sources it
# The part of scripts/try_windows.sh about tasks other than enlarging pictures, about other commands, and about
# registries and films. That script sources it, after it has made the engine `engine`. The networks are small, with
# random weights: those of this repository's tests, and those that `xtask synth` writes.
tests=$scripts/../tests
# What follows is in this folder.
mkdir -p "$folder/Aufgaben/windows" "$folder/Aufgaben/linux"

# on_windows ARGUMENT …, on_linux ARGUMENT …: `runtime` in that folder.
on_windows() {
    task_windows runtime "$@"
}
on_linux() {
    task_here runtime "$@"
}
task_windows() {
    (inside="$inside/Aufgaben" && under_wine wine "../bin/$1.exe" "${@:2}")
}
task_here() {
    (cd "$folder/Aufgaben" && PATH="$linux:$PATH" "$@")
}
# piped INPUT OUTPUT COMMAND …: with both files as its standard input and output.
piped() {
    "${@:3}" <"$folder/Aufgaben/$1" >"$folder/Aufgaben/$2"
}

# built NAME ARGUMENT …: an engine, built by both; each is verified by the other. ONNX Runtime writes some graphs with
# their constants and libraries in another order on each system, so that they are counted only.
graphs=0 equal_graphs=0
built() {
    local name=$1 file
    shift
    expect 0 task_windows engine-builder build "$@" -o "$name"
    expect 0 task_here engine-builder build "$@" -o "linux/$name"
    while read -r file; do
        graphs=$((graphs + 1))
        if cmp --silent "$folder/Aufgaben/$name/$file" "$folder/Aufgaben/linux/$name/$file"; then
            equal_graphs=$((equal_graphs + 1))
        fi
    done < <(cd "$folder/Aufgaben/linux/$name" && find . -name '*.onnx')
    while read -r file; do
        check "$name: the same weights" near "$folder/Aufgaben/$name/$file" "$folder/Aufgaben/linux/$name/$file"
    done < <(cd "$folder/Aufgaben/linux/$name" && find . -name '*.weights')
    expect 0 on_windows verify --engine "linux/$name"
    expect 0 on_linux verify --engine "$name"
}

# near ONE OTHER: the same bytes, or nearly the same. Sines, cosines and logarithms of the two C libraries differ in
# their last bits, and so does what is made of them. What differs, and how far, is printed.
near() {
    if cmp --silent "$1" "$2"; then return; fi
    case $1 in
        *.png) python3 "$scripts/picture_psnr.py" "$1" "$2" 60 ;;
        *) python3 "$scripts/windows/float_distance.py" "$1" "$2" 1e-5 ;;
    esac
}

# alike FILE: windows/FILE and linux/FILE have the same bytes.
alike() {
    check "$1 has the same bytes" diff -r "$folder/Aufgaben/windows/$1" "$folder/Aufgaben/linux/$1"
}

# both FILE ARGUMENT …: `runtime` with these arguments and an output of this name, on both systems; then `alike`.
both() {
    local file=$1
    shift
    expect 0 on_windows "$@" --output "windows/$file"
    expect 0 on_linux "$@" --output "linux/$file"
    alike "$file"
}
# both_near FILE ARGUMENT …: the same with `near`.
both_near() {
    local file=$1
    shift
    expect 0 on_windows "$@" --output "windows/$file"
    expect 0 on_linux "$@" --output "linux/$file"
    check "$file is the same, or nearly so" near "$folder/Aufgaben/windows/$file" "$folder/Aufgaben/linux/$file"
}

echo "Other tasks"
PYTHONPATH=$scripts python3 -B "$scripts/windows/task_inputs.py" "$folder/Aufgaben" || exit 1
# export_synthetic NAME ARCHITECTURE SHAPES: the graph of a network, exported by both.
export_synthetic() {
    expect 0 task_here xtask synth "$2" -o "$1.safetensors"
    expect 0 task_windows exporter export "$1.safetensors" -o "$1.onnx" --shapes "$3" --weights copy
    expect 0 task_here exporter export "$1.safetensors" -o "linux/$1.onnx" --shapes "$3" --weights copy
    check "exported alike: $1" cmp "$folder/Aufgaben/$1.onnx" "$folder/Aufgaben/linux/$1.onnx"
}
export_synthetic depth DepthAnything pixel_values:1x3x56x70
built Tiefe depth.onnx --profile cpu
both depth.npy infer --engine Tiefe --input picture.png
both depth.png infer --engine Tiefe --input picture.png --colour-map Spectral
export_synthetic realtime SimpleOptimizedUNet frame:1x3x16x32
export_synthetic refine RGBDDepth pixel_values:1x3x56x70,inverse_depth:1x1x56x70
built Karten refine.onnx --profile cpu
for format in npy exr tiff png; do
    both "refined.$format" infer --engine Karten --input picture.png --depth map.npy
done

built Lücken lama.safetensors --profile holes.yaml
both filled.png infer --engine Lücken --input picture.png --mask mask.png
built Gesichter gfpgan.safetensors --profile faces.yaml
both face.png infer --engine Gesichter --input face-in.png
built Echtzeit realtime.onnx --profile cpu
both realtime.rgb infer --engine Echtzeit --raw rgb24:32x16 --input small-frames.rgb

built Autoencoder vae --profile cpu --size 64x64
both latent.safetensors encode --engine Autoencoder --input picture.png
both_near sample.safetensors encode --engine Autoencoder --input picture.png --sample 42
both decoded.png decode --engine Autoencoder --input linux/latent.safetensors
expect 0 on_windows roundtrip --engine Autoencoder --input picture.png

echo "Pictures from texts"
prompt=(--prompt "a photo of a red fox in the snow, café 🦊!" --negative-prompt "blurry, film grain" --steps 4
    --seed 42 --guidance 4)
for pipeline in sd sd-inpainting xl; do
    built "$pipeline" "$pipeline.folder" --profile small.yaml --size 64x64
done
both_near sd.png generate --engine sd "${prompt[@]}"
both_near xl.png generate --engine xl "${prompt[@]}"
for scheduler in EulerAncestralDiscrete DPMSolverMultistep UniPCMultistep LCM; do
    both_near "$scheduler.png" generate --engine sd "${prompt[@]}" --scheduler "${scheduler}Scheduler"
done
both_near DDIM.png generate --engine sd "${prompt[@]}" --scheduler DDIMScheduler --eta 0.5
both_near image.png generate --engine sd "${prompt[@]}" --image picture.png --strength 0.75
both_near mask-4.png generate --engine sd "${prompt[@]}" --image picture.png --mask mask.png --strength 0.75
both_near mask-9.png generate --engine sd-inpainting "${prompt[@]}" --image picture.png --mask mask.png --strength 1
both_near latent-of-text.safetensors generate --engine sd "${prompt[@]}"
both_near again.png generate --engine sd --from-image windows/image.png --image picture.png
check "the settings in a picture make it again" same_picture Aufgaben/windows/again.png Aufgaben/windows/image.png
# The pictures of diffusers, with the bound of tests/golden-pipelines/README.md.
for pair in sd:text-PNDM xl:text-xl-EulerDiscrete DDIM:text-DDIM EulerAncestralDiscrete:text-EulerAncestralDiscrete \
    DPMSolverMultistep:text-DPMSolverMultistep UniPCMultistep:text-UniPCMultistep LCM:text-LCM image:image-PNDM \
    mask-4:mask-4-PNDM mask-9:mask-9-PNDM; do
    check "${pair%:*}.png is that of diffusers" python3 "$scripts/picture_psnr.py" \
        "$folder/Aufgaben/windows/${pair%:*}.png" "$tests/golden-pipelines/pictures/${pair#*:}.png" 50
done

echo "Frames and clips"
both frames-x4.y4m infer --engine ../engine --input frames.y4m
both frames-x4.rgb infer --engine ../engine --raw rgb24:32x24 --input frames.rgb
for system in windows linux; do
    expect 0 piped frames.y4m "$system/piped.y4m" "on_$system" infer --engine ../engine --input - --output -
    expect 0 piped frames.rgb "$system/piped.rgb" "on_$system" infer --engine ../engine --raw rgb24:32x24 --input - \
        --output -
    expect 0 piped picture.png "$system/piped.png" "on_$system" infer --engine ../engine --input - --output -
    for ending in y4m rgb; do
        check "$system: pipes carry the same frames as files" \
            cmp "$folder/Aufgaben/$system/piped.$ending" "$folder/Aufgaben/$system/frames-x4.$ending"
    done
done
alike piped.png
built Clips ema_vae.safetensors --profile cpu --size 32x32 --frames 5
both clip.safetensors encode --engine Clips --input frames.y4m
both clip.y4m decode --engine Clips --input linux/clip.safetensors
both Einzelbilder decode --engine Clips --input linux/clip.safetensors
built Restaurierung restorer/restorer.yaml --profile small-tiles.yaml
both restored.rgb infer --engine Restaurierung --raw rgb24:32x24 --input frames.rgb --seed 42
both restored.png infer --engine Restaurierung --input face-in.png --seed 42

echo "graphs with the same bytes on both systems: $equal_graphs of $graphs"

echo "Other commands"
expect 0 on_windows compare windows/sd.png linux/sd.png
expect 4 on_windows compare windows/sd.png windows/xl.png --minimum-psnr 99
expect 0 on_windows bench --engine ../engine --runs 1 --warm-up 0 --passes 1 --count 1 --tile 64x64
expect 0 on_windows warm --engine sd
expect 0 task_windows exporter inspect sd.folder
expect 0 task_windows engine-builder diff sd sd-inpainting
expect 0 task_windows engine-builder rebuild Tiefe -o Tiefe-neu
for file in "$folder"/Aufgaben/Tiefe/*.onnx "$folder"/Aufgaben/Tiefe/*.weights; do
    check "rebuilt alike: ${file##*/}" cmp "$file" "$folder/Aufgaben/Tiefe-neu/${file##*/}"
done
for system in windows here; do
    output=${system/here/linux}
    expect 0 "task_$system" engine-builder convert depth.onnx --precision fp16 -o "$output/half.onnx"
    expect 0 "task_$system" engine-builder pack sd -o "$output/sd.tar"
done
alike half.onnx
alike sd.tar
expect 0 on_windows unpack linux/sd.tar -o ausgepackt
check "an engine of several parts is unpacked whole" diff -r "$folder/Aufgaben/sd" "$folder/Aufgaben/ausgepackt"
expect 0 task_windows engine-builder lint depth.onnx --target tensorrt-10
expect 0 task_windows engine-builder models
expect 0 task_windows engine-builder profiles
for program in exporter engine-builder runtime tileforge-server; do
    expect 0 task_windows "$program" completions powershell
done

if command -v docker-registry >/dev/null; then
    echo "A registry"
    expect 0 task_windows engine-builder keygen -o Absender
    # An engine of one graph with a signature, and one of several parts.
    cp -r "$folder/Aufgaben/Tiefe" "$folder/Aufgaben/signiert"
    expect 0 task_windows engine-builder sign signiert --key Absender.key
    # registry SETTINGS STATUS [TLS]: an empty one on a free port, which answers with this status; with TLS, by HTTPS.
    # `$registry` is its HOST:PORT, and `$server` its process.
    registry() {
        scheme=${3:+https}
        registry=127.0.0.1:$(PYTHONPATH=$scripts python3 -c 'import commands; print(commands.free_port())')
        rm -rf "$trial/registry"
        mkdir "$trial/registry"
        cat >"$trial/registry.yml" <<YAML
version: 0.1
log: { level: error, accesslog: { disabled: true } }
http: { addr: '$registry'${3:+, tls: $3} }
storage: { filesystem: { rootdirectory: '$trial/registry' }, delete: { enabled: true } }
$1
YAML
        docker-registry serve "$trial/registry.yml" >"$trial/registry.log" 2>&1 &
        server=$!
        until_is "${2}" status_of_registry
        check "the registry answers: $found" [ "$found" = "$2" ]
    }
    status_of_registry() {
        curl --silent --insecure --noproxy '*' --output /dev/null --write-out '%{http_code}' \
            "${scheme:-http}://$registry/v2/"
    }
    # Without what this machine's user has.
    plain=(env --unset=http_proxy --unset=HTTP_PROXY --unset=https_proxy --unset=HTTPS_PROXY --unset=all_proxy
        --unset=ALL_PROXY --unset=TILEFORGE_REGISTRY_USERNAME --unset=TILEFORGE_REGISTRY_PASSWORD)
    # wine_with [NAME=VALUE …] PROGRAM ARGUMENT …, and the same here.
    wine_with() {
        local variables=()
        while [[ $1 == *=* ]]; do
            variables+=("$1")
            shift
        done
        (inside="$inside/Aufgaben" && under_wine "${plain[@]}" DOCKER_CONFIG='Z:\programs\docker' \
            "${variables[@]}" wine "../bin/$1.exe" "${@:2}")
    }
    here_with() {
        (cd "$folder/Aufgaben" && PATH="$linux:$PATH" "${plain[@]}" DOCKER_CONFIG="$trial/docker" "$@")
    }
    # pulled FOLDER ENGINE: what was pulled is this engine.
    pulled() {
        check "$1 is what was pushed" diff -r "$folder/Aufgaben/$1" "$folder/Aufgaben/$2"
    }

    registry "" 200
    expect 0 wine_with engine-builder push signiert "oci://$registry/depth:1.0"
    expect 0 here_with runtime pull "oci://$registry/depth:1.0" -o linux/gezogen --require-signature Absender.pub
    pulled linux/gezogen signiert
    expect 0 wine_with runtime pull "oci://$registry/depth:1.0" --list
    check "its variants are told" grep -q 'fits cpu' "$trial/output.txt"
    expect 0 wine_with runtime pull "oci://$registry/depth:1.0" -o windows/gezogen --require-signature Absender.pub
    pulled windows/gezogen signiert
    expect 0 here_with engine-builder push sd "oci://$registry/sd:1.0"
    expect 0 wine_with runtime pull "oci://$registry/sd:1.0" -o windows/sd-gezogen
    pulled windows/sd-gezogen sd
    # Every file is there already.
    expect 0 wine_with engine-builder push sd "oci://$registry/sd:1.0" --json
    check "nothing is sent twice" grep -Eq '"sent": ?\{ ?"files": ?0' <(tr -d '\n ' <"$trial/output.txt")
    expect 0 wine_with runtime infer --engine "oci://$registry/depth:1.0" --input picture.png \
        --output windows/depth-of-registry.npy
    check "an engine is used by its address" \
        cmp "$folder/Aufgaben/windows/depth-of-registry.npy" "$folder/Aufgaben/windows/depth.npy"
    expect 1 wine_with runtime pull "oci://$registry/nothing:1.0" -o windows/nothing
    kill "$server"
    wait "$server"

    # The user `me` with the password `secret`, by bcrypt.
    # shellcheck disable=SC2016 # dollars of bcrypt
    echo 'me:$2b$05$Pb1HykwCoNY0gOF7pxcyE.HLPYIlnRvSYzdPFUKfMvYiorVrt7.YW' >"$trial/passwords"
    registry "auth: { htpasswd: { realm: ours, path: '$trial/passwords' } }" 401
    as_me=(TILEFORGE_REGISTRY_USERNAME=me TILEFORGE_REGISTRY_PASSWORD=secret)
    expect 1 wine_with engine-builder push signiert "oci://$registry/depth:1.0"
    expect 1 wine_with "${as_me[@]/secret/wrong}" engine-builder push signiert "oci://$registry/depth:1.0"
    expect 0 wine_with "${as_me[@]}" engine-builder push signiert "oci://$registry/depth:1.0"
    expect 0 here_with "${as_me[@]}" runtime pull "oci://$registry/depth:1.0" -o linux/mit-Kennwort
    pulled linux/mit-Kennwort signiert
    # As `docker login` has it.
    mkdir -p "$trial/docker"
    echo "{\"auths\": {\"$registry\": {\"auth\": \"$(printf me:secret | base64)\"}}}" >"$trial/docker/config.json"
    expect 0 wine_with runtime pull "oci://$registry/depth:1.0" -o windows/mit-Kennwort
    pulled windows/mit-Kennwort signiert
    kill "$server"
    wait "$server"

    # By HTTPS, with a certificate of its own that certs.d has. Docker's name of the folder has no colon on Windows.
    new_certificate -addext basicConstraints=critical,CA:FALSE
    registry "" 200 "{ certificate: '$trial/server.crt', key: '$trial/server.key' }"
    certificates=docker/certs.d/${registry/:/}
    mkdir -p "$trial/$certificates"
    expect 1 wine_with XDG_CONFIG_HOME='Z:\programs' engine-builder push signiert "oci://$registry/depth:1.0"
    cp "$trial/server.crt" "$trial/$certificates/ca.crt"
    expect 0 wine_with XDG_CONFIG_HOME='Z:\programs' engine-builder push signiert "oci://$registry/depth:1.0"
    expect 0 wine_with XDG_CONFIG_HOME='Z:\programs' runtime pull "oci://$registry/depth:1.0" -o windows/mit-TLS
    pulled windows/mit-TLS signiert
    kill "$server"
    wait "$server"
fi

if [ -n "${FILMS:-}" ]; then
    echo "Films"
    mkdir "$trial/films"
    cp "$FILMS/ffmpeg.exe" "$FILMS/ffprobe.exe" "$trial/films"
    with_films() {
        (inside="$inside/Aufgaben" && under_wine WINEPATH="Z:\\programs\\films" wine "../bin/runtime.exe" "$@")
    }
    head -n 1 < <(under_wine wine 'Z:\programs\films\ffmpeg.exe' -version)
    head -n 1 < <(under_wine wine 'Z:\programs\films\ffprobe.exe' -version)
    expect 0 ffmpeg -y -loglevel error -f lavfi -i testsrc2=size=64x48:duration=1:rate=10 -f lavfi \
        -i sine=duration=1 -c:v libx264 -c:a flac "$folder/Aufgaben/Film für Oma.mkv"
    expect 0 with_films infer --engine ../engine --input "Film für Oma.mkv" --output windows/film.mkv
    expect 0 with_films infer --engine ../engine --input "Film für Oma.mkv" --output windows/lossless.mkv --lossless
    expect 0 on_linux infer --engine ../engine --input "Film für Oma.mkv" --output linux/lossless.mkv --lossless
    # streams FILE OPTION …: the hashes of a film's streams.
    streams() {
        (cd "$folder/Aufgaben" && ffmpeg -loglevel error -i "$@" -f streamhash -)
    }
    check "its frames are those of this machine's film" \
        diff <(streams windows/lossless.mkv -map 0:v) <(streams linux/lossless.mkv -map 0:v)
    check "its sound is copied" \
        diff <(streams "Film für Oma.mkv" -map 0:a -c copy) <(streams windows/film.mkv -map 0:a -c copy)
fi
