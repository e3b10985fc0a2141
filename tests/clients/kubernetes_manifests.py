"""Checks manifests of Kubernetes against the schemas of its objects: kubernetes_manifests.py VERSION FILE...

Fields that a schema does not have are refused. Schemas of KServe and KEDA are not on PyPI. Of an InferenceService, the
predictor's pod is checked; of a ScaledObject, its target and that it has a trigger. With `--crd FILE`, objects of that
definition are checked against it, too: `kubectl get crd NAME -o yaml` prints it.

Prints the command of each container as JSON.
"""

import argparse
import json
import sys

import kubernetes_validate
import yaml
from jsonschema import Draft7Validator

parser = argparse.ArgumentParser()
parser.add_argument("version")
parser.add_argument("files", nargs="+")
parser.add_argument("--crd", action="append", default=[])
arguments = parser.parse_args()

# What KServe has beside a pod: https://kserve.github.io/website/docs/reference/crd-api
PREDICTOR = {"minReplicas", "maxReplicas", "timeout", "containerConcurrency", "scaleTarget", "scaleMetric"}


def strict(schema):
    """The schema of a definition, without fields that it does not name, and without what JSON Schema does not know."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        return {}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


definitions = {}
for path in arguments.crd:
    with open(path) as file:
        definition = yaml.safe_load(file)["spec"]
    for version in definition["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        definitions[f"{definition['group']}/{version['name']}", definition["names"]["kind"]] = schema

documents = []
for path in arguments.files:
    with open(path) as file:
        documents += [(path, document) for document in yaml.safe_load_all(file)]
names = {(document["kind"], document["metadata"]["name"]) for _, document in documents}
for path, document in documents:
    kind = document["apiVersion"], document["kind"]
    if kind in definitions:
        Draft7Validator(definitions[kind]).validate(document)
    if kind == ("serving.kserve.io/v1beta1", "InferenceService"):
        predictor = document["spec"]["predictor"]
        pod = {key: value for key, value in predictor.items() if key not in PREDICTOR}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": document["metadata"], "spec": pod}
    elif kind == ("keda.sh/v1alpha1", "ScaledObject"):
        target = document["spec"]["scaleTargetRef"]["name"]
        if ("Deployment", target) not in names or not document["spec"]["triggers"]:
            sys.exit(f"{path}: expected a Deployment {target} and a trigger")
        continue
    kubernetes_validate.validate(document, arguments.version, strict=True)
    spec = document["spec"].get("template", document)["spec"] if document["kind"] != "Service" else {}
    for container in spec.get("containers", []):
        print(json.dumps(container["command"] + container["args"]))
