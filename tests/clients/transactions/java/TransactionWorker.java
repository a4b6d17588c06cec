import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's Java client as a transactional client; the same orders and answers as worker.py. */
public final class TransactionWorker {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);

    private final String bootstrap;
    private final Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;

    private TransactionWorker(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        TransactionWorker worker = new TransactionWorker(arguments[0]);
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(JSON.writeValueAsString(worker.answer(JSON.readTree(line))));
            answers.flush();
        }
        worker.close();
    }

    private ObjectNode answer(JsonNode order) throws Exception {
        ObjectNode answer = JSON.createObjectNode().putNull("result");
        try {
            obey(order, answer);
        } catch (KafkaException error) {
            answer.put("kind", error.getClass().getSimpleName()).put("error", error.toString());
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            answer.put("kind", cause.getClass().getSimpleName()).put("error", cause.toString());
        }
        return answer;
    }

    private void obey(JsonNode order, ObjectNode answer) throws Exception {
        switch (order.get("op").asText()) {
            case "open" -> open(order);
            case "begin" -> producer.beginTransaction();
            case "send" -> send(order);
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "read" -> read(order, answer.putArray("result"));
            case "join" -> join(order);
            case "take" -> take(answer.putArray("result"));
            case "send_offsets" ->
                producer.sendOffsetsToTransaction(reached, consumer.groupMetadata());
            case "close" -> close();
            default -> throw new IllegalArgumentException(order.toString());
        }
    }

    private void open(JsonNode order) {
        Properties config = clientConfig();
        config.put("transactional.id", order.get("transactional_id").asText());
        config.put("transaction.timeout.ms", order.get("timeout_ms").asText());
        producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
    }

    private void send(JsonNode order) throws Exception {
        String topic = order.get("topic").asText();
        int partition = order.get("partition").asInt();
        List<Future<?>> sent = new ArrayList<>();
        String delayMs = order.get("delay_ms").asText();
        for (JsonNode value : order.get("values")) {
            var record = new ProducerRecord<String, String>(topic, partition, null, value.asText());
            if (!delayMs.equals("0")) {
                record.headers().add("penstock-delay-ms", delayMs.getBytes());
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<?> each : sent) {
            each.get();
        }
    }

    private void read(JsonNode order, ArrayNode values) {
        TopicPartition place =
            new TopicPartition(order.get("topic").asText(), order.get("partition").asInt());
        Properties config = consumerConfig(order.get("isolation").asText());
        try (KafkaConsumer<String, String> reader =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            reader.assign(List.of(place));
            reader.seekToBeginning(List.of(place));
            long end = reader.endOffsets(List.of(place)).get(place);
            while (reader.position(place) < end) {
                reader.poll(POLL).forEach(record -> values.add(record.value()));
            }
        }
    }

    private void join(JsonNode order) {
        reached.clear();
        Properties config = consumerConfig("read_committed");
        config.put("group.id", order.get("group").asText());
        config.put("group.instance.id", "only-member");
        config.put("auto.offset.reset", "earliest");
        consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(order.get("topic").asText()));
    }

    private void take(ArrayNode taken) {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        while (records.isEmpty()) {
            records = consumer.poll(POLL);
        }
        records.forEach(record -> {
            reached.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
            taken.addArray().add(record.partition()).add(record.offset()).add(record.value());
        });
    }

    private void close() {
        if (consumer != null) {
            consumer.close();
        }
        if (producer != null) {
            producer.close();
        }
        consumer = null;
        producer = null;
    }

    private Properties consumerConfig(String isolation) {
        Properties config = clientConfig();
        config.put("isolation.level", isolation);
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "10");
        config.put("max.poll.records", "20");
        return config;
    }

    private Properties clientConfig() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        return config;
    }
}
