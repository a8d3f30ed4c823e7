// Package check checks the Kubernetes manifests with Kubernetes' own types. It is a module of
// its own, so that nothing else depends on those.
package check

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// jobs reads the manifests; a field that Kubernetes doesn't know is an error.
func jobs(t *testing.T) map[string]batch.CronJob {
	t.Helper()
	raw, err := os.ReadFile("../cronjob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]batch.CronJob{}
	for _, document := range bytes.Split(raw, []byte("\n---\n")) {
		var job batch.CronJob
		if err := yaml.UnmarshalStrict(document, &job); err != nil {
			t.Fatal(err)
		}
		if job.APIVersion != "batch/v1" || job.Kind != "CronJob" {
			t.Fatalf("it is a %s of %s", job.Kind, job.APIVersion)
		}
		found[job.Name] = job
	}
	if len(found) != 2 {
		t.Fatalf("%d jobs", len(found))
	}
	return found
}

func container(t *testing.T, job batch.CronJob) core.Container {
	t.Helper()
	containers := job.Spec.JobTemplate.Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	return containers[0]
}

// becomes returns the action of a pod policy for an exit code: the first rule decides.
func becomes(policy *batch.PodFailurePolicy, code int32) batch.PodFailurePolicyAction {
	for _, rule := range policy.Rules {
		if on := rule.OnExitCodes; on != nil && on.Operator == batch.PodFailurePolicyOnExitCodesOpIn && slices.Contains(on.Values, code) {
			return rule.Action
		}
	}
	return batch.PodFailurePolicyActionCount
}

// TestExitCodes: the manifest treats each of repolock's exit codes as a failure, or tries
// again, as it should.
func TestExitCodes(t *testing.T) {
	const count, ignore, fail = batch.PodFailurePolicyActionCount, batch.PodFailurePolicyActionIgnore, batch.PodFailurePolicyActionFailJob
	all := jobs(t)
	for code, want := range map[int32][2]batch.PodFailurePolicyAction{
		1:   {count, count},
		64:  {fail, fail},
		66:  {count, count},
		69:  {count, count},
		75:  {ignore, ignore},
		77:  {fail, fail},
		78:  {fail, fail},
		79:  {count, fail},
		126: {fail, fail},
		127: {fail, fail},
		143: {count, count},
	} {
		for i, name := range []string{"repolock-backup", "repolock-prune"} {
			if got := becomes(all[name].Spec.JobTemplate.Spec.PodFailurePolicy, code); got != want[i] {
				t.Errorf("%s: %d becomes %s, want %s", name, code, got, want[i])
			}
		}
	}
}

// TestRules are some that the server checks, beyond the types: it wouldn't take the
// manifest, or would do something else than it says.
func TestRules(t *testing.T) {
	for name, job := range jobs(t) {
		spec := job.Spec.JobTemplate.Spec
		pod := spec.Template.Spec
		c := container(t, job)
		if job.Spec.ConcurrencyPolicy != batch.ForbidConcurrent {
			t.Errorf("%s runs beside itself", name)
		}
		if pod.RestartPolicy != core.RestartPolicyNever {
			t.Errorf("%s: a pod failure policy needs restartPolicy Never", name)
		}
		if spec.ActiveDeadlineSeconds == nil || spec.BackoffLimit == nil {
			t.Errorf("%s: what is ignored would be tried for ever", name)
		}
		for _, rule := range spec.PodFailurePolicy.Rules {
			if on := rule.OnExitCodes; on != nil && (on.ContainerName == nil || *on.ContainerName != c.Name ||
				!slices.IsSorted(on.Values) || len(slices.Compact(slices.Clone(on.Values))) != len(on.Values) || slices.Contains(on.Values, 0)) {
				t.Errorf("%s: the server refuses %v", name, on)
			}
		}
		if c.Command != nil {
			t.Errorf("%s: process 1 must be repolock", name)
		}
		if grace := pod.TerminationGracePeriodSeconds; grace == nil || *grace < 60 {
			t.Errorf("%s: no time to end in", name)
		}
		if len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef == nil {
			t.Errorf("%s: secrets come from a Secret", name)
		}
		volumes := map[string]bool{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = true
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: no volume %s", name, m.Name)
			}
			delete(volumes, m.Name)
		}
		if len(volumes) > 0 {
			t.Errorf("%s: nobody mounts %v", name, volumes)
		}
	}
}

// TestArguments: repolock accepts the arguments, and runs the command that they name.
func TestArguments(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "repolock"), "./cmd/repolock")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "restic"), []byte("#!/bin/sh\necho $REPOLOCK_MODE: $*\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	all := jobs(t)
	for name, want := range map[string]string{
		"repolock-backup": "shared: backup --host data /data",
		"repolock-prune":  "exclusive: unlock --quiet\nexclusive: forget --prune --keep-daily 7 --keep-weekly 5",
	} {
		repo := t.TempDir()
		if err := os.WriteFile(filepath.Join(repo, "config"), nil, 0o600); err != nil { // nothing but locks would be told
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(dir, "repolock"), container(t, all[name]).Args...)
		cmd.Env = append(os.Environ(), "RESTIC_REPOSITORY="+repo, "RESTIC_PASSWORD=x", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}
