package app_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"athanor/server/api"
	"athanor/server/app"
)

// TestFineTunesSurviveKills runs one job undisturbed and then again and again,
// each time with kill -9 of its process or of the whole appliance at a random
// instant: of preparation, training, packing or storing. The weights of every run
// are those of the first, byte for byte, and nothing else is left.
func TestFineTunesSurviveKills(t *testing.T) {
	rounds := 3
	if os.Getenv("ATHANOR_KILLS") != "" {
		rounds = 20
	} else if testing.Short() {
		t.Skip("skipped by -short: starts servers")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := openReal(t)
	file := p.upload(t, shortConversations(24))
	begin := time.Now()
	want := p.weights(t, p.await(t, p.create(t, file)))
	whole := time.Since(begin)
	where := map[string]int{}
	for round := range rounds {
		id := p.create(t, file)
		<-time.After(time.Duration(random.Int64N(int64(whole))))
		stage := p.fineTune(t, id).Status
		if found := trainingChildren(t, p.Cmd.Process.Pid); round%2 == 0 && len(found) == 1 {
			_ = syscall.Kill(found[0], syscall.SIGKILL) // it may have ended just now
			where["process, "+stage]++
		} else {
			if err := p.Cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.done
			next := serve(t, p.Data, nil, "--onnxruntime", library(t))
			next.Key = p.Key
			p = next
			where["appliance, "+stage]++
		}
		if got := p.weights(t, p.await(t, id)); !slices.Equal(got, want) {
			t.Errorf("round %d, killed while %s: weights %q, undisturbed %q", round, stage, got, want)
		}
	}
	t.Logf("%d kills in a job of %v: %v", rounds, whole.Round(time.Millisecond), where)
	within(t, 10*time.Second, "the directories of the jobs to go", func() bool {
		left, _ := filepath.Glob(filepath.Join(p.Data, "training", "*"))
		return len(left) == 0
	})
}

// upload stores a dataset and waits until it is ready.
func (p *process) upload(t *testing.T, content string) string {
	t.Helper()
	file, ok, err := sendFile(p.Base, p.Key, "fine-tune", content)
	if !ok || err != nil {
		t.Fatalf("upload: %v", err)
	}
	within(t, 30*time.Second, "the file to be checked", func() bool {
		return fileOf(t, p.Base, p.Key, file.ID).ProcessingStatus == "COMPLETED"
	})
	return file.ID
}

// create starts a short job whose adapter has dropout, so that its random numbers
// count too.
func (p *process) create(t *testing.T, file string) string {
	t.Helper()
	status, body := post(t, p.Base+"/v1/fine-tunes", p.Key, fmt.Sprintf(
		`{"training_file":%q,"model":%q,"n_epochs":8,"n_checkpoints":3,"batch_size":4,"packing":false,"learning_rate":0.001,
		"training_type":{"type":"Lora","lora_r":8,"lora_alpha":16,"lora_dropout":0.1}}`, file, app.DemoModel))
	var f fineTune
	if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil || f.ID == "" {
		t.Fatalf("create: %d %s", status, body)
	}
	return f.ID
}

// await waits for the end of a job and returns the name of its model.
func (p *process) await(t *testing.T, id string) string {
	t.Helper()
	var f api.FineTune
	within(t, 5*time.Minute, "the end of the job", func() bool {
		<-time.After(20 * time.Millisecond)
		status, body := get(t, p.Base+"/v1/fine-tunes/"+id, p.Key)
		if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil || f.Status == "error" {
			t.Fatalf("retrieve: %d %s", status, body)
		}
		return f.Status == "completed"
	})
	return f.ModelOutputName
}

// weights are the hashes of what a job made, in order of what they are.
func (p *process) weights(t *testing.T, model string) (hashes []string) {
	t.Helper()
	var l api.FineTuneLineage
	status, body := get(t, p.Base+"/v1/fine-tunes/lineage?model="+url.QueryEscape(model), p.Key)
	if err := json.Unmarshal([]byte(body), &l); status != http.StatusOK || err != nil || !l.Verified {
		t.Fatalf("lineage: %d %s", status, body)
	}
	for _, link := range l.Chain {
		if link.Kind != "dataset" && link.Kind != "base" {
			hashes = append(hashes, fmt.Sprintf("%s %d %s", link.Kind, link.Step, link.Hash))
		}
	}
	if len(hashes) < 2 || !strings.Contains(body, `"checkpoint"`) {
		t.Fatalf("no weights in %s", body)
	}
	return hashes
}

// TestFineTuneIsCancelled cancels jobs at each stage: while another one has the
// machine, in preparation, in training, while the weights are written, and while they
// are stored. Each time no process, no directory, no model and no object is left.
func TestFineTuneIsCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped by -short: starts a server")
	}
	p := openReal(t)
	file := p.upload(t, shortConversations(24))
	before := objectsOf(t, p.Data)
	first, second := p.startFineTune(t, 500), p.createSeeded(t, file, 0)
	p.trains(t, first)
	if got := p.cancelled(t, second); got != "queued" {
		t.Errorf("the job behind another one was cancelled while %s", got)
	}
	if len(trainingChildren(t, p.Cmd.Process.Pid)) != 1 {
		t.Error("the job before it does not train any more")
	}
	if got := p.cancelled(t, first); got != "running" {
		t.Errorf("the job that trains was cancelled while %s", got)
	}
	p.nothingLeft(t, before)
	seed := 0
	for _, stage := range []string{"running", "compressing", "uploading"} {
		// The stages are short: a job may be past one before it is cancelled there.
		for try := 1; ; try++ {
			if try > 30 {
				t.Fatalf("30 jobs were all past %s when they were cancelled", stage)
			}
			before, seed = objectsOf(t, p.Data), seed+1
			id := p.createSeeded(t, file, seed)
			for now := ""; now != stage && now != "completed"; now = p.fineTune(t, id).Status {
				if now == "error" {
					t.Fatalf("the job failed: %+v", p.fineTune(t, id))
				}
			}
			if p.cancelled(t, id) == stage {
				t.Logf("%s: job %d was cancelled there", stage, try)
				break
			}
		}
		p.nothingLeft(t, before)
	}
}

// createSeeded starts a short job whose weights nobody else makes.
func (p *process) createSeeded(t *testing.T, file string, seed int) string {
	t.Helper()
	status, body := post(t, p.Base+"/v1/fine-tunes", p.Key, fmt.Sprintf(
		`{"training_file":%q,"model":%q,"n_epochs":2,"batch_size":4,"packing":false,"random_seed":%d,"lora_r":8}`, file, app.DemoModel, seed))
	var f fineTune
	if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil || f.ID == "" {
		t.Fatalf("create: %d %s", status, body)
	}
	return f.ID
}

// cancelled cancels a job, waits for its end, and returns the state in which that
// reached it, or completed when its work was done.
func (p *process) cancelled(t *testing.T, id string) (stage string) {
	t.Helper()
	if status, body := post(t, p.Base+"/v1/fine-tunes/"+id+"/cancel", p.Key, ""); status != http.StatusOK && !strings.Contains(body, "is completed already") {
		t.Fatalf("cancel: %d %s", status, body)
	}
	var f api.FineTune
	within(t, time.Minute, "the end of the job", func() bool {
		status, body := get(t, p.Base+"/v1/fine-tunes/"+id, p.Key)
		if err := json.Unmarshal([]byte(body), &f); status != http.StatusOK || err != nil || f.Status == "error" {
			t.Fatalf("retrieve: %d %s", status, body)
		}
		return f.Status == "cancelled" || f.Status == "completed"
	})
	_, models := get(t, p.Base+"/v1/models", p.Key)
	if there := strings.Contains(models, fmt.Sprintf("%q", f.ModelOutputName)); there != (f.Status == "completed") {
		t.Errorf("job %s is %s, and its model is registered: %v", id, f.Status, there)
	}
	if f.Status == "completed" {
		return f.Status
	}
	stage = "queued"
	for _, e := range f.Events {
		switch e.Type {
		case "job_start":
			stage = "running"
		case "model_compressing":
			stage = "compressing"
		case "model_uploading":
			stage = "uploading"
		}
	}
	return stage
}

// nothingLeft looks for what a cancelled job could leave.
func (p *process) nothingLeft(t *testing.T, objects []string) {
	t.Helper()
	if found := trainingChildren(t, p.Cmd.Process.Pid); len(found) != 0 {
		t.Errorf("processes %v live on", found)
	}
	if now := objectsOf(t, p.Data); !slices.Equal(now, objects) {
		t.Errorf("objects %q, before the job %q", now, objects)
	}
	within(t, 10*time.Second, "the directory of the job to go", func() bool {
		left, _ := filepath.Glob(filepath.Join(p.Data, "training", "*"))
		return len(left) == 0
	})
}
