//! Lists whose filters and orders take the database long.

use std::time::Duration;

use loadmaster_proto::wire::v1;
use loadmaster_tests::call;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use super::meter::{Called, Others};
use super::raw::reason;
use crate::lists::scene::{Scene, content};

/// Plans that look for the same text in vain.
const PLANS: i32 = 20_000;
/// They have what lists look at, and little else.
const FILL: &str = "
INSERT INTO plans (id, profile_id, model_id, content, create_time)
SELECT 'h' || n, profile_id, model_id, content || jsonb_build_object('solver', repeat('ab', 200) || n),
       now() - n * interval '1 second'
FROM plans CROSS JOIN generate_series($1, $1 + 4999) AS n WHERE id = $2";

/// A filter of as many comparisons as there may be, each with every row.
fn costly() -> v1::ListPlansRequest {
    let looks: Vec<String> =
        (0..64).map(|number| format!("solver:\"{}{number:02}x\"", "ab".repeat(8))).collect();
    v1::ListPlansRequest {
        page_size: 1,
        filter: looks.join(" OR "),
        order_by: "solver, predicted_seconds desc".to_owned(),
        ..Default::default()
    }
}

/// Callers of lists that are never found, on so many connections of one address; they end with the set.
async fn attack(scene: &Scene, connections: usize) -> JoinSet<()> {
    let mut attack = JoinSet::new();
    for _ in 0..connections {
        let channel = scene.planner.channel().await;
        for _ in 0..4 {
            let channel = channel.clone();
            attack.spawn(async move {
                loop {
                    if let Err(status) = call(&channel, costly()).await {
                        let (reason, _) = reason(&status);
                        let expected = ["LIST_TOO_SLOW", "TOO_MANY_CALLS", "CALL_TIMEOUT"];
                        assert!(expected.contains(&reason.as_str()), "{status}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            });
        }
    }
    attack
}

#[tokio::test(flavor = "multi_thread")]
async fn costly_lists_of_one_caller_leave_the_database_to_others() {
    let scene = Scene::new().await;
    let (profile, model) = (scene.profile("p", Vec::new()).await, scene.model(10).await);
    let plan = scene.plan("first", &content(&profile, &model, "cpu", &[15, 15])).await;
    for from in (0..PLANS).step_by(5_000) {
        sqlx::query(FILL)
            .bind(from)
            .bind("first")
            .execute(scene.store.pool())
            .await
            .expect("plans are stored");
    }
    let called = Called { plan: Some(plan.to_string()), ..Called::default() };
    let others = Others::calling(&scene.planner, called);
    let mut costly = attack(&scene, 8).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    others.were_served("8 connections look for lists with 64 comparisons").await;
    assert!(costly.try_join_next().is_none(), "the attack goes on");
    costly.shutdown().await;

    // The same where no list ends by itself: all wait for a lock, and so does every call that reads a plan.
    let others = Others::of(&scene.planner);
    let mut lock = PgConnection::connect(&scene.database_url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE plan_facts IN ACCESS EXCLUSIVE MODE").execute(&mut lock).await.unwrap();
    let mut endless = attack(&scene, 8).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    others.were_served("8 connections look for lists that do not end").await;
    if let Some(ended) = endless.try_join_next() {
        ended.expect("the attack goes on");
    }
    let channel = scene.planner.channel().await;
    endless.shutdown().await;
    // What was begun for those who left ends by itself.
    let refused = loop {
        match call(&channel, self::costly()).await {
            Err(status) if reason(&status).0 == "LIST_TOO_SLOW" => break status,
            Err(status) => assert_eq!(reason(&status).0, "DATABASE_UNAVAILABLE", "{status}"),
            Ok(page) => panic!("the table is locked: {page:?}"),
        }
    };
    assert!(refused.message().contains("Narrow its filter"), "{refused}");
    sqlx::raw_sql("ROLLBACK").execute(&mut lock).await.unwrap();
    call(&channel, self::costly()).await.expect("the lock is gone");
}
