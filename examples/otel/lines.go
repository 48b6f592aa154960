package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// lines prints a line for each time series; stdoutmetric's own encoder prints JSON.
type lines struct{ w io.Writer }

// Encode prints a *metricdata.ResourceMetrics.
func (l lines) Encode(v any) error {
	_, err := fmt.Fprintln(l.w, strings.Join(series(v.(*metricdata.ResourceMetrics)), "\n"))
	return err
}

func series(data *metricdata.ResourceMetrics) (all []string) {
	for _, m := range data.ScopeMetrics[0].Metrics {
		line := func(set attribute.Set, format string, args ...any) {
			name := set.Encoded(attribute.DefaultEncoder())
			all = append(all, fmt.Sprintf("%-32s %-32s ", m.Name, name)+fmt.Sprintf(format, args...))
		}
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				line(p.Attributes, "%d, %.4f %s on average", p.Count, p.Sum/float64(p.Count), m.Unit)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				line(p.Attributes, "%d", p.Value)
			}
		}
	}
	slices.Sort(all)
	return all
}
