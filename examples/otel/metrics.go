package main

import (
	"context"
	"errors"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics is a pglock.Tracer that measures. One is enough for all clients of a process.
//
// No metric has the lease's name: where names come from data, as one for each file, each
// would be a time series of its own. Add it where there are a few.
type metrics struct {
	acquire, wait, held       metric.Float64Histogram
	renewals, losses, refused metric.Int64Counter
}

// All that a client can tell; a misspelt method would never be called.
var _ interface {
	pglock.Tracer
	pglock.WaitTracer
	pglock.RenewTracer
	pglock.LossTracer
	pglock.ReleaseTracer
	pglock.FenceTracer
} = (*metrics)(nil)

func newMetrics(provider metric.MeterProvider) (*metrics, error) {
	meter := provider.Meter("github.com/gatepost/gatepost/pglock")
	var errs []error
	seconds := func(name, what string, buckets ...float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	quick := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10} // the database's answers
	slow := []float64{.01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}                  // people's work
	m := &metrics{
		acquire:  seconds("gatepost.lease.acquire.duration", "Duration of a try to acquire a lease.", quick...),
		wait:     seconds("gatepost.lease.wait.duration", "How long a lease of another holder was waited for.", slow...),
		held:     seconds("gatepost.lease.held.duration", "How long a lease was held until it was released or lost.", slow...),
		renewals: count("gatepost.lease.renewals", "{renewal}", "Renewals, one for each lease and time."),
		losses:   count("gatepost.lease.losses", "{loss}", "Leases that expired or were superseded while they were held."),
		refused:  count("gatepost.fence.refusals", "{refusal}", "Fenced transactions that the database refused."),
	}
	return m, errors.Join(errs...)
}

// started carries what a Start method knows to its End.
type started struct{}

func start(ctx context.Context, v any) context.Context { return context.WithValue(ctx, started{}, v) }

func atStart[T any](ctx context.Context) T {
	v, _ := ctx.Value(started{}).(T)
	return v
}

func (m *metrics) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return start(ctx, time.Now())
}

func (m *metrics) TraceAcquireEnd(ctx context.Context, d pglock.TraceAcquireEndData) {
	m.acquire.Record(ctx, time.Since(atStart[time.Time](ctx)).Seconds(), outcome("granted", d.Err))
}

func (m *metrics) TraceWaitStart(ctx context.Context, _ pglock.TraceWaitStartData) context.Context {
	return ctx
}

func (m *metrics) TraceWaitEnd(ctx context.Context, d pglock.TraceWaitEndData) {
	m.wait.Record(ctx, d.Waited.Seconds(), outcome("granted", d.Err))
}

func (m *metrics) TraceRenewStart(ctx context.Context, d pglock.TraceRenewStartData) context.Context {
	return start(ctx, d.Leases)
}

func (m *metrics) TraceRenewEnd(ctx context.Context, d pglock.TraceRenewEndData) {
	m.renewals.Add(ctx, int64(d.Renewed), outcome("renewed", nil))
	m.renewals.Add(ctx, int64(atStart[int](ctx)-d.Renewed), outcome("not_renewed", d.Err))
}

func (m *metrics) TraceLoss(ctx context.Context, d pglock.TraceLossData) {
	m.losses.Add(ctx, 1, metric.WithAttributes(errorType(d.Reason)))
	m.held.Record(ctx, d.Held.Seconds(), outcome("lost", nil))
}

func (m *metrics) TraceReleaseStart(ctx context.Context, d pglock.TraceReleaseStartData) context.Context {
	return start(ctx, d.Held)
}

func (m *metrics) TraceReleaseEnd(ctx context.Context, d pglock.TraceReleaseEndData) {
	if !errors.Is(d.Err, pglock.ErrLost) { // else TraceLoss was told
		m.held.Record(ctx, atStart[time.Duration](ctx).Seconds(), outcome("released", d.Err))
	}
}

func (m *metrics) TraceFenceStart(ctx context.Context, _ pglock.TraceFenceStartData) context.Context {
	return ctx
}

func (m *metrics) TraceFenceEnd(ctx context.Context, d pglock.TraceFenceEndData) {
	if errors.Is(d.Err, pglock.ErrFenced) {
		m.refused.Add(ctx, 1, metric.WithAttributes(errorType(d.Err)))
	}
}

// outcome is good, held by another, or an error with its type.
func outcome(good string, err error) metric.MeasurementOption {
	const key = attribute.Key("gatepost.outcome")
	switch {
	case err == nil:
		return metric.WithAttributes(key.String(good))
	case errors.Is(err, pglock.ErrHeld):
		return metric.WithAttributes(key.String("held"))
	default:
		return metric.WithAttributes(key.String("error"), errorType(err))
	}
}

// errorType is the attribute of OpenTelemetry's conventions: few values, no messages.
func errorType(err error) attribute.KeyValue {
	kind := "_OTHER"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		kind = pgErr.Code
	}
	for name, reason := range map[string]error{
		"expired": pglock.ErrExpired, "superseded": pglock.ErrSuperseded, "released": pglock.ErrReleased, // one at most
	} {
		if errors.Is(err, reason) {
			kind = name
		}
	}
	return attribute.String("error.type", kind)
}
