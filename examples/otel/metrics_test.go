package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestMetrics_SayWhatHappened(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	m, err := newMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	if err := play(t.Context(), pgtest.Connect(t, pgtest.Database(t)), m); err != nil {
		t.Fatal(err)
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}

	var got []string // name, attributes and count
	for _, line := range series(&data) {
		words := strings.Fields(strings.ReplaceAll(line, ",", ""))[:3]
		if strings.HasPrefix(line, "gatepost.lease.acquire") && words[1] == "gatepost.outcome=held" {
			words[2] = "some" // a waiter's tries depend on how soon its LISTEN is there
		}
		got = append(got, strings.Join(words, " "))
	}
	want := []string{
		"gatepost.fence.refusals error.type=superseded 1",
		"gatepost.lease.acquire.duration gatepost.outcome=granted 3",
		"gatepost.lease.acquire.duration gatepost.outcome=held some",
		"gatepost.lease.held.duration gatepost.outcome=lost 1",
		"gatepost.lease.held.duration gatepost.outcome=released 2",
		"gatepost.lease.losses error.type=superseded 1",
		"gatepost.lease.renewals gatepost.outcome=not_renewed 0",
		"gatepost.lease.renewals gatepost.outcome=renewed 1",
		"gatepost.lease.wait.duration gatepost.outcome=held 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		h, ok := m.Data.(metricdata.Histogram[float64])
		if ok && m.Name == "gatepost.lease.wait.duration" && (h.DataPoints[0].Sum <= 0 || h.DataPoints[0].Sum > 10) {
			t.Errorf("waited %g %s, want about 0.2 s", h.DataPoints[0].Sum, m.Unit)
		}
	}
}
