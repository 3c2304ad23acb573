// iperf3 as a client: its JSON holds what both ends counted.

package run

import (
	"encoding/json"
	"errors"

	"muxperf/matrix/cell"
)

// iperf3Line takes the figures out of iperf3's JSON: sent by the client, received by the server.
func iperf3Line(text string) (line, error) {
	var doc struct {
		Error     string
		Intervals []struct {
			Sum struct {
				End   float64
				Bytes uint64
			}
		}
		End struct {
			SumSent     struct{ Bytes uint64 } `json:"sum_sent"`
			SumReceived struct {
				Bytes   uint64
				Seconds float64
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return line{}, err
	}
	if doc.Error != "" {
		return line{}, errors.New(doc.Error)
	}
	l := line{Event: "result", Protocol: "iperf3", Sent: doc.End.SumSent.Bytes, Received: doc.End.SumReceived.Bytes, Seconds: doc.End.SumReceived.Seconds}
	for _, iv := range doc.Intervals {
		l.Intervals = append(l.Intervals, cell.Interval{End: iv.Sum.End, Bytes: iv.Sum.Bytes})
	}
	return l, nil
}
