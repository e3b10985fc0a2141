# shellcheck shell=bash disable=SC2154,SC2034 # variables of the script that sources it
# The part of scripts/try_windows.sh about the server. That script sources it, after it has made the engines `engine`
# and `engines/Größe 4`.

# serve NAME COMMAND …: starts a server or a worker in the background, and waits until its engine is open. `$process` is
# its number, `$web` its address for HTTP as a URL, and `$calls` that for gRPC.
serve() {
    local name=$1
    shift
    "$@" --http 127.0.0.1:0 >"$trial/$name.txt" 2>"$trial/$name.log" </dev/null &
    process=$!
    for _ in $(seq 600); do
        web=$(grep -E '^https?:' "$trial/$name.txt" | tr -d '\r')
        calls=$(sed -nE 's|^grpcs?://||p' "$trial/$name.txt" | tr -d '\r')
        if [ -n "$web" ] && ask --max-time 5 "$web/v2/health/ready" >/dev/null 2>&1; then
            return
        fi
        sleep 0.1
    done
    echo "error: $name does not get ready; its log ends with:"
    tail -n 5 "$trial/$name.log"
    failed=1
}
# ended EVENT: the server ends after this event.
ended() {
    wait "$process"
    code=$?
    check "$1 ends it with 0: $code" [ "$code" -eq 0 ]
}
ask() {
    curl --silent --show-error --fail --max-time 300 --cacert "$trial/server.crt" "$@"
}
# enlarge URL PICTURE ARGUMENT …
enlarge() {
    ask --form "image=@$folder/share/tileforge/coffee.png" --output "$folder/$2" "$1/v1/upscale?engine=demo" "${@:3}"
}
# The status that a request gets.
status() {
    ask --no-fail --output "$trial/status.txt" --write-out '%{http_code}' "$@"
}
figure() {
    ask --max-time 5 "$web/metrics" | sed -n "s/^$1 //p" | tr -d '\r'
}
# until_is WANTED COMMAND …: waits until a command prints this, for a minute at most. `$found` is what it has printed.
until_is() {
    local wanted=$1
    shift
    for _ in $(seq 300); do
        found=$("$@" 2>/dev/null)
        if [ "$found" = "$wanted" ]; then return; fi
        sleep 0.2
    done
    return 1
}
# new_certificate [OPTION …]: of this machine's loopback, by another key each time; OPTIONs are those of openssl.
new_certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=trial \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$trial/server.key" -out "$trial/server.crt" \
        "$@" 2>"$trial/openssl.txt" || exit 1
    cp "$trial/server.key" "$folder/Zertifikat.key"
    cp "$trial/server.crt" "$folder/Zertifikat.crt"
}

echo "The server"
# The clients' tests ask an engine with small tiles.
cp "$scripts/../tests/profiles/small-tiles.yaml" "$folder"
run engine-builder build "$share\\models\\compact-x4.yaml" --profile small-tiles.yaml --calibration-tiles 4 \
    -o kleine-Kacheln
new_certificate
serving=(tileforge-server serve --model-name demo=engine --model-name small=kleine-Kacheln --grpc 127.0.0.1:0
    --grace 300)
serve linux-server here "${serving[@]}"
linux_process=$process linux_web=$web
serve server with_events "${serving[@]}"
expect 0 enlarge "$linux_web" linux-served.png
expect 0 enlarge "$web" served.png
check "the served picture has the bytes of this machine's server" \
    cmp "$folder/served.png" "$folder/linux-served.png"
# A tensor of 32² as JSON.
python3 - >"$trial/tensor.json" <<'PYTHON'
import json

data = [i % 97 / 96 for i in range(3072)]
print(json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": data}]}))
PYTHON
for place in "$linux_web" "$web"; do
    expect 0 ask --data-binary "@$trial/tensor.json" --output "$trial/tensor-${place##*:}.json" \
        "$place/v2/models/demo/infer"
done
check "tensors are those of this machine's server" \
    cmp "$trial/tensor-${web##*:}.json" "$trial/tensor-${linux_web##*:}.json"
check "the page for people is served" ask --output "$trial/page.html" "$web/"
if [ -n "${CLIENTS:-}" ]; then
    expect 0 "$CLIENTS" "$scripts/../tests/clients/open_inference.py" "${web#*://}" "$calls" small
fi
runs=$(figure tileforge_runs)
check "figures are told: $runs runs" [ "${runs%.*}" -gt 0 ]
# Accepted work ends before the server does.
for event in ctrl-c break; do
    if [ "$event" = break ]; then serve server with_events "${serving[@]}"; fi
    enlarge "$web" "$event.png" &
    client=$!
    for _ in $(seq 600); do
        running=$(figure tileforge_running)
        if [ "${running:-0}" != 0 ]; then break; fi
        sleep 0.02
    done
    send "$event"
    wait "$client"
    code=$?
    check "$event while $running run goes on: its client has an answer: $code" [ "$code" -eq 0 ]
    check "$event: the answer is whole" cmp "$folder/$event.png" "$folder/served.png"
    ended "$event"
done
kill -TERM "$(pgrep -P "$linux_process" tileforge-serve || echo "$linux_process")"
wait "$linux_process"

echo "The server, with keys and a certificate"
# Keys are given to curl in files, so that they are not printed.
for user in anna bernd; do
    run tileforge-server key "$user" --keys Schlüsselbund
    tr -d '\r\n' <"$trial/output.txt" >"$trial/$user.key"
    echo "Authorization: Bearer $(cat "$trial/$user.key")" >"$trial/$user.header"
done
as_anna=(--header "@$trial/anna.header")
as_bernd=(--header "@$trial/bernd.header")
# One that lacks its last digit.
head --bytes -1 "$trial/anna.key" >"$trial/wrong.key"
echo "Authorization: Bearer $(cat "$trial/wrong.key")" >"$trial/wrong.header"
digests=$(wc -l <"$folder/Schlüsselbund")
keys=$(grep -c -f "$trial/anna.key" -f "$trial/bernd.key" "$folder/Schlüsselbund")
check "the file has $digests digests and $keys keys" [ "$digests $keys" = "2 0" ]
serve secure with_events "${serving[@]}" --keys Schlüsselbund --tls-certificate Zertifikat.crt \
    --tls-key Zertifikat.key
expect 60 curl --silent --show-error "$web/v2/health/ready"
found=$(status "$web/v1/models")
check "without a key: $found" [ "$found" = 401 ]
found=$(status --header "@$trial/wrong.header" "$web/v1/models")
check "with a wrong key: $found" [ "$found" = 401 ]
for version in 1.2 1.3; do
    found=$(status "${as_anna[@]}" "--tlsv$version" --tls-max "$version" "$web/v1/models")
    check "with a key, TLS $version: $found" [ "$found" = 200 ]
done
expect 0 enlarge "$web" secure.png "${as_anna[@]}"
check "the picture is the same" cmp "$folder/secure.png" "$folder/served.png"
if [ -n "${CLIENTS:-}" ]; then
    cat >"$trial/calls.py" <<'PYTHON'
import sys

import numpy as np
import tritonclient.grpc as grpc

address, certificate, key_file = sys.argv[1:]
key = open(key_file).read()
client = grpc.InferenceServerClient(address, ssl=True, root_certificates=certificate)
given = grpc.InferInput("image", [1, 3, 32, 32], "FP32")
given.set_data_from_numpy(np.zeros((1, 3, 32, 32), np.float32))
print(client.infer("demo", [given], headers={"authorization": f"Bearer {key}"}).as_numpy("upscaled").shape)
PYTHON
    expect 0 "$CLIENTS" "$trial/calls.py" "$calls" "$trial/server.crt" "$trial/anna.key"
    expect 1 "$CLIENTS" "$trial/calls.py" "$calls" "$trial/server.crt" "$trial/wrong.key"
    check "gRPC refuses a wrong key" grep -q UNAUTHENTICATED "$trial/output.txt"
fi
job=$(ask "${as_anna[@]}" --form "image=@$folder/share/tileforge/coffee.png" "$web/v1/jobs/upscale?engine=demo" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
state_of_job() {
    ask "${as_anna[@]}" "$web/v1/jobs/$job" | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"])'
}
until_is completed state_of_job
check "a job: $found" [ "$found" = completed ]
expect 0 ask "${as_anna[@]}" --output "$folder/job.png" "$web/v1/jobs/$job/result"
check "its result is the same picture" cmp "$folder/job.png" "$folder/served.png"
found=$(status "${as_bernd[@]}" "$web/v1/jobs/$job")
check "another key does not find it: $found" [ "$found" = 404 ]
found="$(status "${as_anna[@]}" --request DELETE "$web/v1/jobs/$job") $(status "${as_anna[@]}" "$web/v1/jobs/$job")"
check "it is removed: $found" [ "$found" = "200 404" ]
new_certificate
until_is 200 status "${as_anna[@]}" "$web/v1/models"
check "a new certificate is noticed: $found" [ "$found" = 200 ]
send c
ended Ctrl-C

echo "An engine is exchanged while it is served"
run engine-builder pack "engines\\Größe 4" -o "Größe 4.tar"
mkdir "$folder/Dienst"
cp -r "$folder/engine" "$folder/Dienst/demo"
serve exchange with_events tileforge-server serve --engines Dienst --grpc off
expect 0 enlarge "$web" before.png
expect 0 ask --request POST "$web/v2/repository/models/demo/unload"
rm -r "$folder/Dienst/demo"
run runtime unpack "Größe 4.tar" -o 'Dienst\demo'
expect 0 ask --request POST "$web/v2/repository/models/demo/load"
expect 0 enlarge "$web" after.png
send b
ended Ctrl-Break
run runtime infer --engine "engines\\Größe 4" --input "$share\\coffee.png" --output other-engine.png
check "before, it was the one engine" cmp "$folder/before.png" "$folder/served.png"
check "then the other one" same_picture after.png other-engine.png
cmp --silent "$folder/before.png" "$folder/after.png"
check "they are not the same" [ $? -eq 1 ]

if [ -n "${CLIENTS:-}" ] && command -v nats-server redis-server >/dev/null; then
    echo "Workers"
    # One of each broker: NATS takes messages, and Redis tasks of Celery.
    ports=()
    for _ in nats redis; do
        ports+=("$(PYTHONPATH=$scripts python3 -c 'import commands; print(commands.free_port())')")
    done
    mkdir -p "$trial/nats" "$trial/redis" "$trial/objects/in"
    cp "$folder/share/tileforge/coffee.png" "$trial/objects/in/Kaffee ☕.png"
    nats-server -a 127.0.0.1 -js -p "${ports[0]}" -sd "$trial/nats" >"$trial/nats.log" 2>&1 &
    brokers=($!)
    redis-server --bind 127.0.0.1 --port "${ports[1]}" --save "" --dir "$trial/redis" >"$trial/redis.log" 2>&1 &
    brokers+=($!)
    # Z: is Linux' root.
    objects=file:///Z:/programs/objects
    working=(tileforge-server work --model-name demo=engine --grace 300 --store "$objects")
    inputs="{\"image\": \"$objects/in/Kaffee%20%E2%98%95.png\"}"

    with_nats() {
        "$CLIENTS" "$scripts/../tests/clients/nats_jobs.py" "nats://127.0.0.1:${ports[0]}" tileforge "$@"
    }
    with_celery() {
        "$CLIENTS" "$scripts/../tests/clients/celery_jobs.py" "redis://127.0.0.1:${ports[1]}/0" tileforge "$@"
    }
    serve nats-worker with_events "${working[@]}" --broker "nats://127.0.0.1:${ports[0]}"
    for output in "$objects/out/nats.png" file:///Z:/programs/elsewhere.png; do
        echo "{\"id\": \"job\", \"kind\": \"upscale\", \"inputs\": $inputs, \"output\": \"$output\"}"
    done | with_nats send
    until_is 0 with_nats left
    check "jobs of NATS are done: $found left" [ "$found" = 0 ]
    check "the object is the served picture" cmp "$trial/objects/out/nats.png" "$folder/served.png"
    check "its marker says so" grep -q '"done"' "$trial/objects/out/nats.png.job.json"
    check "an output outside of the store is a dead letter" grep -q 'below a prefix' <(with_nats dead)
    send c
    ended Ctrl-C
    serve redis-worker with_events "${working[@]}" --broker "redis://127.0.0.1:${ports[1]}/0"
    arguments="{\"inputs\": $inputs, \"output\": \"$objects/out/redis.png\"}"
    echo "{\"id\": \"task\", \"kind\": \"upscale\", \"kwargs\": $arguments}" | with_celery send
    expect 0 with_celery get task
    check "a task of Celery succeeds" grep -q SUCCESS "$trial/output.txt"
    check "the object is the served picture" cmp "$trial/objects/out/redis.png" "$folder/served.png"
    check "nothing but results and markers is there" \
        [ "$(find "$trial/objects/out" -type f | wc -l)" -eq 4 ]
    send b
    ended Ctrl-Break
    kill "${brokers[@]}"
    wait "${brokers[@]}"
fi
