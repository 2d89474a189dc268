// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/cmd/niclane/internal/top"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
)

func (a *app) topCommand() *cobra.Command {
	interval := time.Second
	var sent bool
	cmd := &cobra.Command{
		Use:   "top [DEV]",
		Short: "Show the lanes' rates live, on a terminal",
		Long: `Top shows the rates of status --watch live: packets, bits and drops per second of each
lane, class and queue, interrupts, the polling threads, their polls, processor time and
context switches. Lanes appear and disappear as they are applied and rolled back. Keys:
q quits, p pauses, l hides queues, arrow and page keys scroll, Tab changes columns if
the terminal is too narrow for all.

With --sent, top counts packets where they leave, by lane and queue, which costs every
packet of the host time while top runs.`,
		Args: cli.AtMost(1, "at most one device"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval < 100*time.Millisecond || interval > time.Minute {
				return cli.Usagef("top: --interval %v: want 100ms to 1m", interval)
			}
			if a.JSON {
				return cli.Usagef("top: --json: top needs a terminal; niclane --json status --watch is for programs")
			}
			if err := cli.NeedRoot("top"); err != nil {
				return err
			}
			if !cli.IsTerminal(a.Stdout) {
				return errors.New("top: standard output is not a terminal: niclane status --watch prints the same")
			}
			return a.top(cmd.Context(), args, interval, sent)
		},
	}
	cli.TimeVar(cmd.Flags(), &interval, "interval", "time between two updates, 100ms to 1m")
	cmd.Flags().BoolVar(&sent, "sent", false, "count packets where they leave, by lane and queue")
	return cmd
}

func (a *app) top(ctx context.Context, args []string, interval time.Duration, sent bool) error {
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	if _, _, err := a.Engine().Fitted(first(args)); err != nil {
		return err
	}
	screen, err := top.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	frames := make(chan top.Frame)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		(&pictures{a: a, args: args, sent: sent}).send(ctx, interval, frames)
	}()
	top.Run(ctx, screen, interval, frames)
	cancel()
	<-ended // wait until the counting programs are detached
	return nil
}

// pictures makes frames from the lanes' counters.
type pictures struct {
	a    *app
	args []string
	sent bool

	rater  *rater
	lanes  []plan.FittedLane
	before status.Moment
	at     time.Time
}

func (p *pictures) send(ctx context.Context, interval time.Duration, frames chan<- top.Frame) {
	defer p.close()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		rows, err := p.next(ctx)
		f := top.Frame{Time: time.Now(), Rows: rows}
		if err != nil {
			p.close()
			f.Notice = err.Error()
		}
		select {
		case frames <- f:
		case <-ctx.Done():
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *pictures) close() {
	if p.rater != nil {
		p.rater.close()
	}
	p.rater, p.lanes, p.at = nil, nil, time.Time{}
}

// next returns the rates since the last call. At the first call, all rates are 0.
func (p *pictures) next(ctx context.Context) ([]status.Row, error) {
	lanes, devices, err := p.a.Engine().Fitted(first(p.args))
	if err != nil {
		return nil, err
	}
	if len(lanes) == 0 {
		return nil, errors.New("no lanes are applied here")
	}
	if !reflect.DeepEqual(lanes, p.lanes) {
		p.close()
		if p.rater, err = p.a.newRater(ctx, lanes, devices, p.sent); err != nil {
			return nil, err
		}
		p.lanes = lanes
	}
	now, at, st, err := p.rater.read(ctx)
	if err != nil {
		return nil, err
	}
	if p.at.IsZero() {
		p.before, p.at = now, at
	}
	rows := status.Rates(p.lanes, st, p.before, now, at.Sub(p.at).Nanoseconds())
	p.before, p.at = now, at
	return rows, nil
}
