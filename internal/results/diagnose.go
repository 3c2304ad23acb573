// Why was it not faster? Each verdict rests on a figure that is in the result, and says which.

package results

import (
	"fmt"
	"strconv"
	"time"

	"muxperf/cli"
	"muxperf/report"
	"muxperf/transport"
)

const (
	busyShare   = 0.5  // of the sender's busy time, from which a kernel limit is called the cause
	windowMatch = 0.20 // how near window by round trip has to come
	cpuFull     = 92.0 // percent of a core, or of all cores of a machine that both ends share
)

// Diagnose looks for what limited a complete run, most certain first.
func Diagnose(r *report.Result) []report.Diagnosis {
	if !r.Complete || len(r.Directions) == 0 {
		return nil
	}
	var out []report.Diagnosis
	for _, rule := range []func(*report.Result) *report.Diagnosis{paced, windowLimited, kernelLimited, lossy, processors} {
		if d := rule(r); d != nil {
			out = append(out, *d)
		}
	}
	return out
}

// paced: the rate that was asked for was the limit.
func paced(r *report.Result) *report.Diagnosis {
	h := r.Directions[0].Headline()
	if r.Params.Rate == 0 || h.Goodput() < 0.95*r.Params.Rate {
		return nil
	}
	return &report.Diagnosis{Verdict: "Limited by the pace", Evidence: fmt.Sprintf("%.1f %% of --bitrate was reached", 100*h.Goodput()/r.Params.Rate)}
}

// senderTCP is the kernel's view at the end that sent, of its first connection.
func senderTCP(r *report.Result) (transport.TCPInfo, bool) {
	tcp := r.TCP
	if (r.Directions[0].Name == "upload") != (r.Role == "client") {
		tcp = r.PeerTCP
	}
	if len(tcp) == 0 {
		return transport.TCPInfo{}, false
	}
	return tcp[0], true
}

// windowLimited: the goodput is what the streams' windows allow for this round trip.
func windowLimited(r *report.Result) *report.Diagnosis {
	tcp, ok := senderTCP(r)
	window, err := cli.ParseSize(r.Tuning["largest stream window"])
	if !ok || err != nil || r.Stack.Mux != "yamux" || tcp.MinRTT < int64(time.Millisecond) {
		return nil
	}
	streams := max(1, r.Params.Streams) * max(1, r.Params.Connections)
	limit := float64(window) * 8 * float64(streams) / time.Duration(tcp.MinRTT).Seconds()
	got := r.Directions[0].Headline().Goodput()
	if got < limit*(1-windowMatch) || got > limit*(1+windowMatch) {
		return nil
	}
	return &report.Diagnosis{Verdict: "Limited by the stream window",
		Evidence: fmt.Sprintf("%s of window in a round trip of %s is %s", cli.FormatSize(window), report.Time(time.Duration(tcp.MinRTT)), report.Format("").Rate(limit)),
		Remedy:   "a larger --stream-window at the receiving end, or more streams"}
}

// kernelLimited: the sender's socket waited for the peer's window, or had too small a buffer.
func kernelLimited(r *report.Result) *report.Diagnosis {
	tcp, ok := senderTCP(r)
	if !ok || tcp.BusyTime == 0 {
		return nil
	}
	if share := float64(tcp.RwndLimited) / float64(tcp.BusyTime); share >= busyShare {
		return &report.Diagnosis{Verdict: "Limited by the receiver",
			Evidence: fmt.Sprintf("the sender's TCP waited %.0f %% of its busy time for the receiver's window: its program reads too slowly, or its socket buffer is small", 100*share)}
	}
	if share := float64(tcp.SndbufLimited) / float64(tcp.BusyTime); share >= busyShare {
		return &report.Diagnosis{Verdict: "Limited by the send buffer",
			Evidence: fmt.Sprintf("the sender's TCP waited %.0f %% of its busy time for room in its socket buffer", 100*share), Remedy: "a larger -w"}
	}
	return nil
}

// lossy: segments were sent again.
func lossy(r *report.Result) *report.Diagnosis {
	tcp, ok := senderTCP(r)
	if !ok || tcp.MSS == 0 {
		return nil
	}
	segments := float64(r.Bytes()) / float64(tcp.MSS)
	if share := float64(tcp.Retransmits) / max(1, segments); share >= 0.001 {
		return &report.Diagnosis{Verdict: "The path loses segments",
			Evidence: fmt.Sprintf("%d were sent again, %.2f %% of all", tcp.Retransmits, 100*share)}
	}
	return nil
}

// processors: an end, or the machine that both share, had no processor time left.
func processors(r *report.Result) *report.Diagnosis {
	cores, err := strconv.Atoi(r.Environment["cpus"])
	if err != nil || r.CPU == nil {
		return nil
	}
	own, other := "client", "server"
	if r.Role == "server" {
		own, other = other, own
	}
	if r.PeerCPU != nil && r.Environment["kernel"] == r.PeerEnv["kernel"] && r.CPU.Percent+r.PeerCPU.Percent >= cpuFull*float64(cores) {
		return &report.Diagnosis{Verdict: "Limited by the processors",
			Evidence: fmt.Sprintf("both ends use %.0f %% of one core together; the machine, if they share it, has %d", r.CPU.Percent+r.PeerCPU.Percent, cores)}
	}
	for _, end := range []struct {
		name string
		cpu  *report.CPU
	}{{own, r.CPU}, {other, r.PeerCPU}} {
		if end.cpu != nil && end.cpu.Percent >= cpuFull*float64(cores) {
			return &report.Diagnosis{Verdict: "Limited by the " + end.name + "'s processors", Evidence: fmt.Sprintf("it uses %.0f %% of one core", end.cpu.Percent)}
		}
	}
	return nil
}
