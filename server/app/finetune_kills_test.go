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
