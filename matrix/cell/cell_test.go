package cell

import (
	"bytes"
	"testing"
)

func of(state State, rates ...float64) *Cell {
	c := &Cell{Key: Key{Client: "a", Server: "b", Stack: "noise+yamux", Streams: 1, Connections: 1}}
	for _, r := range rates {
		c.Reps = append(c.Reps, Rep{State: OK, Goodput: r, Received: 1e9, ClientCPU: 0.5, ServerCPU: 0.25})
	}
	if state != "" {
		c.Reps = append(c.Reps, Rep{State: state, Reason: "because"})
	}
	c.Summarise()
	return c
}

func TestSummaries(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cell  *Cell
		state State
	}{
		{"steady", of("", 100, 101, 102), OK},
		{"wide", of("", 50, 100, 150), Noisy},
		{"one failure among good ones", of(Failed, 100, 101), Failed},
		{"nothing but failures", of(DNF), DNF},
	} {
		if tc.cell.State != tc.state {
			t.Errorf("%s: %s, want %s", tc.name, tc.cell.State, tc.state)
		}
	}
	if c := of("", 3, 1, 2); c.Median != 2 || c.Low != 1 || c.High != 3 || c.ClientCPU != 0.5 || c.ServerCPU != 0.25 {
		t.Errorf("%+v", c)
	}
}

func matrix(cells ...*Cell) *Matrix { return &Matrix{SchemaVersion: SchemaVersion, Cells: cells} }

func TestCompare(t *testing.T) {
	steady := []float64{100, 101, 102, 103, 104, 105}
	slower := []float64{80, 81, 82, 83, 84, 85}
	unavailable := &Cell{Key: of("", 1).Key, State: Unavailable}
	for _, tc := range []struct {
		name     string
		old, now *Matrix
		verdict  Verdict
		loss     float64
	}{
		{"a loss of a fifth", matrix(of("", steady...)), matrix(of("", slower...)), Slower, 0.195},
		{"a gain", matrix(of("", slower...)), matrix(of("", steady...)), Faster, 0},
		{"against itself", matrix(of("", steady...)), matrix(of("", steady...)), Tie, 0},
		{"three of each prove nothing", matrix(of("", 100, 101, 102)), matrix(of("", 1, 2, 3)), TooFew, 0},
		{"four of each do", matrix(of("", 100, 101, 102, 103)), matrix(of("", 50, 51, 52, 53)), Slower, 0.493},
		{"a cell that broke", matrix(of("", steady...)), matrix(of(Failed)), Lost, 1},
		{"one repetition that broke", matrix(of("", steady...)), matrix(of(Failed, steady...)), Lost, 1},
		{"a peer that is gone", matrix(of("", steady...)), matrix(unavailable), Lost, 1},
		{"a cell that is gone", matrix(of("", steady...)), matrix(), Lost, 1},
		{"a cell that is new", matrix(), matrix(of("", steady...)), Added, 0},
		{"a cell that works now", matrix(of(DNF)), matrix(of("", steady...)), Gained, 0},
		{"a cell that never worked", matrix(of(DNF)), matrix(unavailable), Neither, 0},
	} {
		all := Compare(tc.old, tc.now)
		if len(all) != 1 || all[0].Verdict != tc.verdict || all[0].Loss() < tc.loss-0.001 || all[0].Loss() > tc.loss+0.001 {
			t.Errorf("%s: %+v, a loss of %.3f; want %s, %.3f", tc.name, all, all[0].Loss(), tc.verdict, tc.loss)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := matrix(of("", 1, 2, 3)).Write(&b); err != nil {
		t.Fatal(err)
	}
	m, err := Read(&b)
	if err != nil || len(m.Cells) != 1 || m.Cells[0].Median != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := Read(bytes.NewBufferString(`{"schema_version":99}`)); err == nil {
		t.Error("a version from the future was read")
	}
}
