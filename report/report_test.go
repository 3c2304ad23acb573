package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muxperf/measure"
	"muxperf/transport"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is a run in both directions, with everything filled in.
func sample() *Result {
	side := func(bytes uint64, window time.Duration, tcp bool) *Side {
		s := &Side{Totals: measure.Totals{Bytes: bytes, Omitted: 1_000_000, Omit: time.Second, Window: window, Skew: 120 * time.Microsecond,
			Streams: []measure.StreamTotal{{Bytes: bytes / 2}, {Bytes: bytes - bytes/2, Start: 120 * time.Microsecond}},
			Intervals: []measure.Interval{{End: time.Second, Bytes: 1_000_000, Omitted: true, Streams: []uint64{600_000, 400_000}},
				{Start: time.Second, End: 2 * time.Second, Bytes: bytes / 2, Streams: []uint64{bytes / 4, bytes/2 - bytes/4}},
				{Start: 2 * time.Second, End: time.Second + window, Bytes: bytes - bytes/2, Streams: []uint64{0, bytes - bytes/2}}}}}
		if tcp {
			s.TCP = []transport.TCPInfo{{Retransmits: 1, CongestionWnd: 65536, RTT: 250_000, PeerWindow: 1 << 20}, {Retransmits: 3, CongestionWnd: 98304, RTT: 350_000, PeerWindow: 1 << 20},
				{Retransmits: 3, CongestionWnd: 131072, RTT: 300_000, PeerWindow: 1 << 20}}
		}
		return s
	}
	r := &Result{SchemaVersion: SchemaVersion, Tool: Tool{Name: "muxperf", Version: "0.0.0"}, Role: "client", Test: Flood, Protocol: "/muxperf/1.0.0",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: []string{"client", "-t", "2", "h"}, Environment: map[string]string{"kernel": "Linux 6.1", "cpus": "2"},
		Stack: transport.Stack{Carrier: "tcp", Security: "noise", Mux: "yamux"}, Peer: Peer{Address: "192.0.2.1:4001", ID: "12D3KooW"},
		Setup:  &Setup{Setup: transport.Setup{Connect: time.Millisecond, Security: 2 * time.Millisecond, Mux: 30 * time.Microsecond}, Stream: time.Millisecond},
		Params: Params{Duration: 2 * time.Second, Omit: time.Second, Interval: time.Second, Block: 131072, Connections: 1, Streams: 2, Rate: 16e9},
		Limits: []Limit{{"duration", "1h0m0s", "2s"}},
		Directions: []Direction{{Name: "upload", MeasuredAt: "receiver", Receiver: side(2_500_000_000, 2*time.Second, false), Sender: side(2_510_000_000, 2*time.Second, true)},
			{Name: "download", MeasuredAt: "sender", Sender: side(500_000_000, 2*time.Second, false)}},
		CPU: NewCPU(time.Second, 500*time.Millisecond, 2*time.Second, 3e9), PeerCPU: NewCPU(time.Second, time.Second, 2*time.Second, 3e9),
		TCP: []transport.TCPInfo{{Retransmits: 3, MSS: 1448, Congestion: "cubic", SendBuffer: 87040}}, Complete: true}
	r.Directions[0].Receiver.Verified = true
	return r
}

// partial is what is left of a run that was interrupted.
func partial() *Result {
	r := sample()
	r.Directions = r.Directions[:1]
	r.Complete, r.Error = false, &Error{Kind: KindInterrupted, Message: "interrupted"}
	return r
}

// latencies is a round-trip test.
func latencies() *Result {
	h := measure.NewHistogram()
	for i := range 1000 {
		h.Record(time.Duration(20+i%10) * time.Microsecond)
	}
	h.Record(3 * time.Millisecond)
	d := h.Distribution()
	r := sample()
	r.Test, r.Directions, r.Limits = RR, nil, nil
	r.Latency = &Latency{Loop: "open", Window: time.Second, PerSecond: 1001, Corrected: d, Uncorrected: &d}
	r.Repetitions = &Repetitions{Unit: "transactions/s", Values: []float64{1000, 1001, 1100}, Center: 1033, Low: 900, High: 1166, Level: 0.95, Wanted: 0.05}
	return r
}

func TestGolden(t *testing.T) {
	for _, form := range []string{Text, JSON, Stream, IPerf3, Libp2p, PeerRun} {
		for name, make := range map[string]func() *Result{"complete": sample, "partial": partial, "latency": latencies} {
			t.Run(form+"/"+name, func(t *testing.T) {
				var b bytes.Buffer
				r, err := New(form, &b, Options{Histogram: true})
				if err != nil {
					t.Fatal(err)
				}
				res := make()
				r.Start(res)
				if len(res.Directions) > 0 {
					s := res.Directions[0].Sender
					for i, iv := range s.Intervals {
						r.Interval(Live{Interval: iv, Direction: "upload", At: "sender", TCP: s.TCP[i]})
					}
				}
				r.End(res)
				file := filepath.Join("testdata", form+"."+name)
				if *update {
					os.MkdirAll("testdata", 0o755)
					os.WriteFile(file, b.Bytes(), 0o644)
				}
				want, err := os.ReadFile(file)
				if err != nil || !bytes.Equal(b.Bytes(), want) {
					t.Errorf("differs (go test -update writes it anew), %v:\n%s", err, b.String())
				}
			})
		}
	}
}

// TestIPerf3Consumers reads our form by the rules of those who read iperf3's.
func TestIPerf3Consumers(t *testing.T) {
	var b bytes.Buffer
	r, _ := New(IPerf3, &b, Options{})
	one := sample() // only a run of one stream has figures of streams in its intervals
	one.Params.Streams = 1
	for _, d := range one.Directions {
		for _, side := range []*Side{d.Sender, d.Receiver} {
			if side != nil {
				side.Streams = []measure.StreamTotal{{Bytes: side.Bytes}}
			}
		}
	}
	r.End(one)
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	get := func(path string) any {
		var v any = doc
		for key := range strings.SplitSeq(path, ".") {
			switch x := v.(type) {
			case map[string]any:
				v = x[key]
			case []any:
				var i int
				fmt.Sscan(key, &i)
				v = x[i]
			default:
				return nil
			}
		}
		return v
	}
	for consumer, keys := range map[string][]string{
		"pscheduler":       {"intervals.0.streams.0.socket", "intervals.0.streams.0.snd_cwnd", "intervals.0.streams.0.rtt", "intervals.0.streams.0.retransmits", "intervals.0.sum.bits_per_second", "end.streams.0.sender.mean_rtt", "end.sum_sent.bits_per_second"},
		"iperf3-python":    {"start.timestamp.time", "start.timestamp.timesecs", "start.version", "start.system_info", "start.connected.0.local_host", "start.connected.0.remote_port", "start.test_start.protocol", "start.test_start.num_streams", "start.test_start.blksize", "start.test_start.omit", "start.test_start.duration", "start.tcp_mss_default", "end.sum_sent.bytes", "end.sum_sent.retransmits", "end.sum_received.bytes", "end.sum_received.bits_per_second", "end.cpu_utilization_percent.host_total", "end.cpu_utilization_percent.remote_system"},
		"iperf3_exporter":  {"end.sum_sent.seconds", "end.sum_sent.bytes", "end.sum_received.seconds", "end.sum_received.bytes"},
		"openwisp, others": {"end.sum_sent_bidir_reverse.bytes", "end.streams.0.receiver.bytes"},
	} {
		for _, k := range keys {
			if get(k) == nil {
				t.Errorf("%s reads %s, which is not there", consumer, k)
			}
		}
	}
	if _, has := doc["error"]; has {
		t.Error("a good run has an error: pscheduler takes that for a failure")
	}
	if got := get("end.sum_received.bits_per_second"); got != 10e9 {
		t.Errorf("received at %v bit/s, want 1e10", got)
	}
}

// TestIPerf3TellsNothingThatIsNotSo: no sum under the name of a stream, each retransmission once, and those of the
// end that sent.
func TestIPerf3TellsNothingThatIsNotSo(t *testing.T) {
	r := sample()
	r.PeerTCP = []transport.TCPInfo{{Retransmits: 77}}
	doc := iperf3Document(r)
	for i, entry := range doc["intervals"].([]object) {
		var bytes, again uint64
		for _, s := range entry["streams"].([]object) {
			bytes += s["bytes"].(uint64)
			again += s["retransmits"].(uint64)
		}
		sum := entry["sum"].(object)
		if len(entry["streams"].([]object)) != 2 || bytes != sum["bytes"] || again != sum["retransmits"] {
			t.Errorf("interval %d: the streams have %d bytes and %d retransmissions, the sum %v", i, bytes, again, sum)
		}
	}
	r.Directions[0].Sender.Intervals[0].Streams = nil // what very many streams have
	if streams := iperf3Document(r)["intervals"].([]object)[0]["streams"].([]object); len(streams) != 0 {
		t.Errorf("nothing is known of two streams, and the interval has %v", streams)
	}
	end := doc["end"].(object)
	if got := end["sum_sent"].(object)["retransmits"]; got != uint64(3) {
		t.Errorf("the client sent again %v segments, want 3", got)
	}
	if got := end["sum_sent_bidir_reverse"].(object)["retransmits"]; got != uint64(77) {
		t.Errorf("the server sent again %v segments, want 77", got)
	}
}

func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		f              Format
		bytes          uint64
		bps            float64
		transfer, rate string
	}{
		{"", 7_710_000_000, 6.17e9, "7.71 GB", "6.17 Gbit/s"},
		{"a", 999, 999, "999 B", "999 bit/s"},
		{"a", 999_600, 999_499, "1.00 MB", "999 kbit/s"},
		{"a", 999_999_999, 999_700_000_000, "1.00 GB", "1.00 Tbit/s"},
		{"m", 1_234_000_000, 987_650_000, "1234 MBytes", "987.65 MBit/s"},
		{"k", 1500, 1500, "1.50 KB", "1.50 Kbit/s"},
		{"G", 2e9, 8e9, "2.00 GB", "1.00 GB/s"},
		{"g", 2e9, 8e9, "2.00 GB", "8.00 Gbit/s"},
	} {
		if got := tc.f.Transfer(tc.bytes); got != tc.transfer {
			t.Errorf("%q: %d bytes are %q, want %q", tc.f, tc.bytes, got, tc.transfer)
		}
		if got := tc.f.Rate(tc.bps); got != tc.rate {
			t.Errorf("%q: %v bit/s are %q, want %q", tc.f, tc.bps, got, tc.rate)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 ns", 999: "999 ns", 1500: "1.50 us", 999_499: "999 us", 999_500: "1.00 ms", 999_999_999: "1.00 s", 25 * time.Millisecond: "25.0 ms", 90 * time.Second: "90.0 s"} {
		if got := Time(d); got != want {
			t.Errorf("%d ns are %q, want %q", d, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for k, code := range map[Kind]int{"": 0, KindFailed: 1, KindUsage: 2, KindConnect: 3, KindRefused: 4, KindStalled: 5, KindVerify: 6, KindThreshold: 7, KindUnsupported: 127, KindInterrupted: 130} {
		if got := k.ExitCode(); got != code {
			t.Errorf("%q exits with %d, want %d", k, got, code)
		}
	}
	inner := errors.New("x")
	e := Wrap(KindConnect, fmt.Errorf("trying: %w", inner), "do y")
	if e.Error() != "trying: x; do y" || !errors.Is(e, inner) || Wrap(KindFailed, fmt.Errorf("again: %w", e), "") != e {
		t.Errorf("%v", e)
	}
}
