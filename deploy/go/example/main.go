// Requests a plan for four devices and places it on one node: example ADDRESS PROFILE NODE
//
// tests/api/go.sh generates package loadmasterv1 from proto/loadmaster/v1 with protoc, and compiles and runs this file.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"

	loadmasterv1 "loadmaster.dev/loadmaster/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: example HOST:PORT profiles/PROFILE NODE")
	}
	address, profile, node := os.Args[1], os.Args[2], os.Args[3]
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// WithInsecure works in every version of grpc. It is deprecated since 1.34 in favor of insecure.NewCredentials.
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	check(err)
	defer connection.Close()
	plans := loadmasterv1.NewPlanServiceClient(connection)

	response, err := plans.RecommendPlan(ctx, &loadmasterv1.RecommendPlanRequest{
		Problem: &loadmasterv1.Problem{
			Profile: profile,
			Devices: []*loadmasterv1.DeviceGroup{{Count: 4, CapacityBytes: 24 << 30}},
		},
		Objective: &loadmasterv1.ObjectiveOptions{Kind: loadmasterv1.Objective_OBJECTIVE_MIN_ITERATION_TIME},
	})
	check(err)
	plan := response.GetPlan()
	if plan == nil {
		// It also has remedies: changes of the request that lead to a plan.
		log.Fatal(response.GetInfeasible().GetMessage())
	}
	placement, err := plans.CreatePlacement(ctx, &loadmasterv1.CreatePlacementRequest{
		Plan:  plan.GetName(),
		Nodes: []*loadmasterv1.AllocatedNode{{Name: node, DeviceIndices: []int32{0, 1, 2, 3}}},
	})
	check(err)

	fmt.Println("plan:", plan.GetName())
	for i, stage := range placement.GetStages() {
		for _, devices := range stage.GetDeviceRanges() {
			last := devices.GetFirstIndex() + devices.GetCount() - 1
			fmt.Printf("stage %d: node %s, devices %d to %d\n", i, devices.GetNode(), devices.GetFirstIndex(), last)
		}
	}
}

// Exits with the error, which contains the gRPC status code and message.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
