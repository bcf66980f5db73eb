package rest_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain proves that connections, streams and watchers end. What is left
// alone is fasthttp's own clock and, asleep, its sweepers.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}
